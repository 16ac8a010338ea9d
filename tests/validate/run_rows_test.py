#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""penstock validate TABLE.csv --as runs: every row is a scenario, and what it says of a row is what
`simulate` says of the scenario that --print shows."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

HEADER = ("id,family,model,layers,hidden,heads,vocab,seq,gpu,nodes,dp,tp,pp,microbatch,microbatches,zero,"
          "tp_mode,split,iteration_s,peak_gib,peak_of\n")
# Made up: pipelines, replicas, tensor parallelism, a last stage without layers.
ROWS = ("one,llama,small,8,1024,16,32000,2048,h100,1,1,1,1,2,8,0,ALL_REDUCE,8,1,8,\"stage 0\"\n"
        "deep,llama,small,8,1024,16,32000,2048,h100,1,2,1,4,1,8,1,ALL_REDUCE,3/3/2/0,1,8,\"stage 0\"\n"
        "wide,gpt,small,8,1024,16,32000,2048,a100-80,2,4,2,2,1,8,1,REDUCE_SCATTER,4/4,1,8,nvidia-smi\n")


def run(*arguments):
    return subprocess.run([os.environ["PENSTOCK_BINARY"], *map(str, arguments)], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=120)


class RunRows(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.table = pathlib.Path(self.folder.name) / "t.csv"
        self.table.write_text(HEADER + ROWS)

    def result(self, *options):
        done = run("validate", self.table, *options, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_simulate_says_of_a_printed_row_what_validate_says(self):
        for number, row in enumerate(self.result("--as", "runs")["rows"], 1):
            with self.subTest(row=row["name"]):
                scenario = run("validate", self.table, "--print", number).stdout
                self.assertEqual(scenario, run("validate", self.table, "--print", row["name"]).stdout)
                path = pathlib.Path(self.folder.name) / "row.yaml"
                path.write_text(scenario)
                simulated = json.loads(run("simulate", path, "--engine", "auto", "--format", "json").stdout)
                self.assertEqual(simulated["iteration_time_s"], row["predicted_s"])
                if row["name"] != "wide":  # which is what nvidia-smi shows, not what is allocated
                    self.assertEqual(simulated["devices"][0]["peak_memory_bytes"], row["predicted_bytes"])

    def test_published_tables_of_the_project_are_what_simulate_says(self):
        """The schedules of the 2BW paper, shared links and rates, and Llama's contexts and FLOPs."""
        published = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "tests" / "published"
        path = pathlib.Path(self.folder.name) / "row.yaml"
        for name in ("pipedream_2bw", "llama3", "torchtitan", "zero_bubble", "selene"):
            table = published / f"{name}.csv"
            # What would help thousands of GPUs takes `simulate` long: of Llama's one replica is asked.
            fewer = ["--set", "pipeline.width=1"] if name == "llama3" else []
            rows = json.loads(run("validate", table, "--as", "runs", *fewer, "--format", "json").stdout)["rows"]
            self.assertGreater(len(rows), 2)
            for number, row in list(enumerate(rows, 1))[::1 + len(rows) // 7]:
                with self.subTest(row=row["name"]):
                    path.write_text(run("validate", table, "--print", number).stdout)
                    simulated = json.loads(run("simulate", path, *fewer, "--engine", "auto", "--format", "json").stdout)
                    self.assertEqual(simulated["iteration_time_s"], row["predicted_s"])
                    self.assertEqual(max(d["peak_memory_bytes"] for d in simulated["devices"]), row["predicted_bytes"])
                    if name == "llama3":
                        # Stated rates count attention as a causal mask leaves it.
                        causal = simulated["tflops_per_device"] * simulated["mfu_causal"] / simulated["mfu"]
                        self.assertAlmostEqual(row["measured_s"] * (430, 400, 380)[number - 1],
                                               row["predicted_s"] * causal, delta=1e-6 * row["predicted_s"] * causal)

    def test_a_row_without_a_scenario_is_left_out_and_said(self):
        table = pathlib.Path(self.folder.name) / "simumax.json"
        row = {"model": "llama3-70b", "layer_num": 2, "mbc": 4, "real_ms": 300, "real_alloc_gib": 20}
        table.write_text(json.dumps({"rows": [{"case": "llama3_70b_l2_tp2_pp1_dp4_mbc4"} | row,
                                              {"case": "moe_ep8"} | row | {"model": "moe"}]}))
        done = json.loads(run("validate", table, "--as", "simumax", "--format", "json").stdout)
        self.assertEqual([row["name"] for row in done["rows"]], ["llama3_70b_l2_tp2_pp1_dp4_mbc4"])
        self.assertIn("moe_ep8 left out: 'moe' is not a model that is known here", done["measured"][0]["notes"])
        self.assertEqual(done["measured"][0]["left_out"], 1)
        self.assertEqual(run("validate", table, "--tolerance", "100%").returncode, 2)
        self.assertIn("has no scenario: 'moe' is not", run("validate", table, "--print", "2").stderr)
        named = table.rename(table.with_suffix(".csv"))  # a name that says otherwise
        self.assertIn("num_layers: 2", run("validate", named, "--as", "simumax", "--print", "1").stdout)

    def test_rows_that_were_predicted_elsewhere_are_reported_when_asked_for(self):
        folder = pathlib.Path(self.folder.name)
        result = folder / "result.csv"
        result.write_text(run("validate", self.table, "--format", "csv").stdout)
        again = json.loads(run("validate", result, "--format", "json").stdout)
        for row, was in zip(again["rows"], self.result()["rows"]):
            for key in ("name", "depth", "measured_s", "predicted_s", "memory_error"):
                self.assertEqual(row[key], was[key])
        # A result that lies beside its table is no measurement.
        self.assertEqual(len(json.loads(run("validate", folder, "--format", "json").stdout)["rows"]), 3)
        page = folder / "page.html"
        asked = run("validate", folder, "--as", "predicted", "--report", page, "--format", "json")
        self.assertEqual(len(json.loads(asked.stdout)["rows"]), 3, asked.stderr)
        text = page.read_text()
        self.assertEqual(text.count('"kind":"scatter"'), 1)
        self.assertIn('"heading":"result"', text)
        self.assertIn("predicted from: what the rows say", text)
        run("validate", result, "--report", page)
        self.assertIn("predicted from: what the rows say", page.read_text(), "guessed from the header")

    def test_the_report_of_a_table_has_every_row_by_its_class(self):
        page = pathlib.Path(self.folder.name) / "page.html"
        done = run("validate", self.table, "--report", page)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = page.read_text()
        self.assertIn('"kind":"scatter"', text)
        self.assertNotIn('"kind":"comparison"', text)
        for part in ('"name":"depth 4"', '["deep",1.0,', "time of an iteration", "peak memory"):
            self.assertIn(part, text)
        self.table.write_text(HEADER.replace("peak_of", "peak_of,class") +
                              ROWS.replace('"stage 0"\n', '"stage 0",mine\n').replace("smi\n", "smi,others\n"))
        run("validate", self.table, "--report", page)
        for name in ("mine", "others"):
            self.assertIn(f'"name":"{name}"', page.read_text())

    def test_rows_of_vtrain_are_scenarios(self):
        self.table.write_text("# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
                              "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"
                              "8,48,3,1536,16,12,512,1,2,4,190\n64,64,2,1536,16,12,512,2,8,4,900\n")
        result = self.result()
        self.assertEqual(result, self.result("--as", "vtrain"))
        path = pathlib.Path(self.folder.name) / "row.yaml"
        for number, row in enumerate(result["rows"], 1):
            path.write_text(run("validate", self.table, "--print", number).stdout)
            simulated = json.loads(run("simulate", path, "--engine", "auto", "--format", "json").stdout)
            self.assertEqual(simulated["iteration_time_s"], row["predicted_s"])
        self.assertIn("was fitted on", "".join(result["measured"][0]["notes"]))
        # Nothing was fitted on them now, which is not to say that nothing was.
        page = pathlib.Path(self.folder.name) / "page.html"
        said = run("validate", self.table, "--report", page).stdout
        of_stack = "nothing fitted here; stack 'megatron-a100-node' was fitted on "
        for text in (said, page.read_text()):
            self.assertIn(of_stack, text)

    def test_the_form_is_guessed_and_rows_keep_their_names(self):
        self.assertEqual([row["name"] for row in self.result()["rows"]], ["one", "deep", "wide"])
        self.assertEqual(self.result()["time"]["n"], 3)
        self.assertEqual(set(self.result()["time_by_pp"]), {"1", "2", "4"})

    def test_a_run_finishes_where_simulate_says_that_it_fits(self):
        big = "big,llama,big,8,16384,128,32000,2048,h100,1,1,1,2,8,8,0,ALL_REDUCE,4/4,,,,"
        self.table.write_text(HEADER.replace("peak_of", "peak_of,finished") +
                              ROWS.replace(",8,\"stage 0\"", ",8,\"stage 0\",1").replace("nvidia-smi", "nvidia-smi,0") +
                              big + "0\n")
        result = self.result()
        self.assertEqual(result["measured"][0]["finished"],
                         {"n": 4, "finished": 2, "right": 3, "false_alarms": 0, "missed": 1})
        self.assertEqual([row["predicted_finished"] for row in result["rows"]], [True, True, True, False])
        self.assertIn("3 of 4 rows right (75.0 %)", run("validate", self.table).stdout)

    def test_a_row_that_is_no_scenario_is_left_out_and_said(self):
        self.table.write_text(HEADER + ROWS.replace("small,8,", "small,9,", 1))
        result = self.result()
        self.assertEqual(len(result["rows"]), 2)
        self.assertIn("one left out", result["measured"][0]["notes"][0])
        self.assertEqual(result["measured"][0]["left_out"], 1)
        self.assertIn("2 rows, 1 left out", run("validate", self.table).stdout)

    def test_the_report_has_the_notes_of_the_table(self):
        self.table.write_text(HEADER + ROWS.replace("small,8,", "small,9,", 1))
        page = pathlib.Path(self.folder.name) / "page.html"
        said = run("validate", self.table, "--report", page).stdout
        notes = [line for line in said.splitlines() if line.startswith("note: ")]
        self.assertTrue(notes)
        for note in notes:
            self.assertIn(json.dumps(note, ensure_ascii=False)[1:-1], page.read_text())
        self.assertIn("nothing fitted here\n", said)

    def test_a_tolerance_does_not_pass_over_rows_that_nobody_saw(self):
        for rows, code, says in ((ROWS, 0, ""),
                                 (ROWS.replace("small,8,", "small,9,", 1), 2, "1 row left out"),  # refused
                                 (ROWS.replace("small,8,", "small,", 1), 2, "")):  # no table
            self.table.write_text(HEADER + rows)
            done = run("validate", self.table, "--tolerance", "100%")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(says, done.stderr)
        # Also where another row is beyond the tolerance.
        self.table.write_text(HEADER + ROWS.replace("small,8,", "small,9,", 1))
        done = run("validate", self.table, "--tolerance", "0.1%")
        self.assertEqual(done.returncode, 2)
        self.assertIn("out of the tolerance", done.stderr)
        # Whoever made the table left it out: nothing is unseen.
        self.table.write_text(HEADER.replace("peak_of", "peak_of,left_out") +
                              ROWS.replace("\n", ",\n").replace(",\n", ",another code\n", 1))
        done = run("validate", self.table, "--tolerance", "100%")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("note: one left out: another code", done.stdout)

    def test_a_row_that_is_not_there(self):
        for row in ("0", "4", "dep"):
            done = run("validate", self.table, "--print", row)
            self.assertEqual(done.returncode, 2)
            self.assertIn("must be a row from 1 to 3", done.stderr)


if __name__ == "__main__":
    unittest.main()
