# SPDX-License-Identifier: Apache-2.0
"""Answers that mean what people take them to mean: the real binary, one class of cases a run.

Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
ENVIRONMENT = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "PENSTOCK_HOME": str(SOURCE),
                            "LC_ALL": "C.UTF-8"}
CHUNKED = ["interleaved-1f1b", "looped-bfs", "zb-v", "v-half", "v-min", "1f1b-v", "hanayo",
           "dualpipev", "interleaved-zb"]
COSTS = "model: {forward: 8 ms, backward_input: 8 ms, backward_weight: 8 ms, parameters: 1 GiB}\n"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-meaning-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_it(self, *arguments, code=0, stdin=""):
        done = subprocess.run([BINARY, *arguments], cwd=self.folder, env=ENVIRONMENT, text=True,
                              capture_output=True, input=stdin, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def json(self, *arguments, code=0, stdin=""):
        return json.loads(self.run_it(*arguments, "--format", "json", code=code,
                                      stdin=stdin).stdout)

    def file(self, text, name="case.yaml"):
        (self.folder / name).write_text(text)
        return name


class Work(Case):
    def test_schedules_with_chunks_do_the_same_work(self):
        case = self.file(COSTS + "schedule: 1f1b\npipeline: {stages: 4, microbatches: 8}\n")
        names = ["1f1b", "gpipe", "zb-h1", "dualpipe", "chimera", *CHUNKED]
        results = self.json("compare", case, "--over", "schedule=" + ",".join(names))
        self.assertEqual([r["schedule"] for r in results], names)
        for r in results:
            busy = sum(d["busy_s"] for d in r["devices"])
            self.assertAlmostEqual(busy, 4 * 8 * 24e-3, places=9, msg=r["schedule"])
            mirrored = r["schedule"] in ("dualpipe", "chimera")  # of two models
            for d in r["devices"]:
                self.assertEqual(d["memory"]["weights"], 2**30 * (2 if mirrored else 1))
        rate = {r["schedule"]: r["throughput_samples_per_s"] for r in results}
        self.assertGreater(rate["interleaved-1f1b"], rate["1f1b"])

    def test_a_sweep_says_the_same(self):
        case = self.file(COSTS + "schedule: 1f1b\npipeline: {stages: 4, microbatches: 8}\n")
        self.run_it("sweep", case, "--over", "schedule=1f1b,interleaved-1f1b", "-o", "rows.jsonl")
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        self.assertGreater(rows[1]["throughput_samples_per_s"], rows[0]["throughput_samples_per_s"])

    def test_layers_of_all_chunks_embedding_and_head_are_shown(self):
        sets = [f"--set={s}" for s in (
            "schedule=interleaved-1f1b", "pipeline.chunks=2", "pipeline.stages=4",
            "pipeline.split=[4,4,4,4,4,4,5,3]")]
        result = self.json("simulate", "gpt-2.2b-flush", *sets)
        self.assertEqual([d["layers"] for d in result["devices"]], [[4, 4], [4, 4], [4, 5], [4, 3]])
        self.assertEqual([d["embedding"] for d in result["devices"]], [True, False, False, False])
        self.assertEqual([d["head"] for d in result["devices"]], [False, False, False, True])
        table = self.run_it("simulate", "gpt-2.2b-flush", *sets).stdout
        for text in ("embed+4+4 ", " 4+4 ", " 4+5 ", " 4+3+head "):
            self.assertIn(text, table)

    def test_stages_without_layers_are_accepted_everywhere(self):
        model = ("stack: none\nmodel: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, vocab_size: 512, "
                 "seq_length: 32, precision: fp32}\n"
                 "cluster: {devices: 3, device: {peak: {fp32: 1 TFLOP/s}, memory: 4 GiB}, "
                 "link: {bandwidth: 1 GB/s, latency: 1 us}}\n")
        case = self.file(model + "schedule: 1f1b\n"
                         "pipeline: {stages: 3, microbatches: 4, split: [1, 1, 0]}\n")
        result = self.json("simulate", case)
        self.assertEqual(result["devices"][2]["layers"], [0])
        for engine in ("exact", "simgrid"):
            self.assertEqual(self.json("simulate", case, "--engine", engine)["makespan_s"],
                             result["makespan_s"])
        replayed = self.json("replay", case, "--clock", "virtual")
        self.assertTrue(replayed["weights_equal"])
        self.assertAlmostEqual(replayed["makespan_s"], result["makespan_s"], places=9)
        self.assertIn("|L", self.run_it("export", case, "--to", "layout").stdout)
        self.run_it("export", case, "--to", "program", "-o", "p.json")
        self.run_it("export", case, "--to", "megatron-args")
        self.run_it("sweep", case, "--over", "microbatches=4,8")
        self.run_it("compare", case, case)


    def test_what_an_order_takes_for_granted_is_said(self):
        costs = COSTS.replace("backward_input: 8 ms, backward_weight: 8 ms", "backward: 16 ms")
        case = self.file(costs + "schedule: 1f1b\npipeline: {stages: 4, microbatches: 8}\n")
        over = ["--over", "schedule=1f1b,zb-h1,v-search"]
        table = self.run_it("compare", case, *over).stdout
        self.assertIn("note, schedule=zb-h1; schedule=v-search: half of a backward counts as "
                      "backward_input, half as backward_weight", table)
        self.assertIn("note, schedule=v-search: 'v-search' searches within 0.5 times the "
                      "activations of 1F1B", table)
        given = self.file(COSTS + "schedule: 1f1b\npipeline: {stages: 4, microbatches: 8, "
                          "memory_limit: 1}\n", "given.yaml")
        notes = self.json("simulate", given, "--set", "schedule=v-search")["notes"]
        self.assertEqual(notes, [])

    def test_what_is_held_counts_in_microbatches_whatever_the_chunks(self):
        case = self.file(COSTS + "schedule: 1f1b\npipeline: {stages: 4, microbatches: 8}\n")
        over = ["--over", "schedule=1f1b,interleaved-1f1b"]
        table = self.run_it("compare", case, *over).stdout
        one, two = self.json("compare", case, *over)
        held = [max(d["stash_peak"] for d in r["devices"]) for r in (one, two)]
        self.assertEqual([r["chunks"] for r in (one, two)], [1, 2])
        for schedule, count in (("1f1b", held[0]), ("interleaved-1f1b", held[1] / 2)):
            self.assertRegex(table, rf"schedule={schedule} .* {count:.1f}\n")
        self.assertIn("a chunk's counting as its part", table)


class Carried(Case):
    """A job under another schedule than its file's."""

    def test_chunks_and_what_belongs_to_a_schedule_go_with_it(self):
        case = self.file(COSTS + "schedule: interleaved-1f1b\n"
                         "pipeline: {stages: 4, chunks: 4, microbatches: 8, group: 4}\n")
        names = ["interleaved-1f1b", "1f1b", "v-half", "zb-h1", "looped-bfs"]
        results = self.json("compare", case, "--over", "schedule=" + ",".join(names))
        self.assertEqual([(r["schedule"], r["chunks"]) for r in results],
                         [*zip(names, (4, 1, 2, 1, 4))])
        for r in results:
            self.assertAlmostEqual(sum(d["busy_s"] for d in r["devices"]), 4 * 8 * 24e-3, places=9)
        self.assertEqual(results[1]["notes"], ["from 'interleaved-1f1b' to '1f1b': chunks: 1, not "
                                               "4; group left out"])

    def test_every_device_keeps_its_layers(self):
        case = self.file("model: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\nschedule: interleaved-1f1b\n"
                         "pipeline: {stages: 4, chunks: 2, microbatches: 8, microbatch_size: 8, "
                         "recompute: full, split: [4, 4, 4, 4, 3, 4, 5, 4]}\n")
        names = ["interleaved-1f1b", "1f1b", "v-half", "torchgpipe"]
        results = self.json("compare", case, "--over", "schedule=" + ",".join(names))
        self.assertEqual([r["schedule"] for r in results], names)
        for r in results:
            layers = [sum(d["layers"]) for d in r["devices"]]
            if r["schedule"] == "v-half":  # the head is on device 0
                self.assertEqual(sum(layers), 32)
                self.assertLessEqual(layers[0], min(layers[1:]))
                self.assertIn("split: balanced, not the list", r["notes"][0])
            else:
                self.assertEqual(layers, [7, 8, 9, 8], r["schedule"])
        back = self.file("model: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\nschedule: 1f1b\n"
                         "pipeline: {stages: 4, microbatches: 8, microbatch_size: 8, "
                         "recompute: [full, none, none, none], split: [7, 8, 9, 8]}\n")
        (v,) = self.json("compare", back, "--over", "schedule=zb-v")
        self.assertIn("split: balanced, not the list", v["notes"][0])
        self.assertIn("recompute: the same on each device", v["notes"][0])

    def test_what_has_no_reading_is_said_in_a_line(self):
        case = self.file(COSTS + "schedule: 1f1b\npipeline: {stages: 3, microbatches: 8}\n")
        done = self.run_it("compare", case, "--over", "schedule=1f1b,chimera", code=2)
        lines = [line for line in done.stderr.splitlines() if line]
        self.assertEqual(len(lines), 2, done.stderr)
        self.assertTrue(lines[0].startswith("at schedule=chimera: "), done.stderr)
        self.assertEqual(lines[1], "1 of 2 were left out")

    def test_what_is_given_with_the_schedule_stays(self):
        case = self.file(COSTS + "schedule: interleaved-1f1b\n"
                         "pipeline: {stages: 4, chunks: 4, microbatches: 8}\n")
        done = self.run_it("simulate", case, "--set", "schedule=1f1b", "--set", "chunks=2", code=2)
        self.assertIn("'1f1b' runs one stage per device", done.stderr)

    def test_coupled_messages_of_chunks_are_one_suggestion(self):
        case = self.file(COSTS + "schedule: interleaved-1f1b\ntransfers: coupled\n"
                         "pipeline: {stages: 4, microbatches: 8}\n")
        said = self.run_it("simulate", case, code=2).stderr
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertEqual(said.count("is stuck before"), 1, said)
        self.assertIn("use transfers: overlapped or blocking", said)
        self.run_it("simulate", case, "--set", "transfers=overlapped")


class Accumulation(Case):
    CASE = COSTS + "schedule: 1f1b\npipeline: {stages: 4, microbatches: 32}\n"

    def test_steps_fill_and_drain_the_pipeline(self):
        case = self.file(self.CASE)
        whole, steps = self.json("compare", case, "--over", "accumulation_steps=1,4")
        one = self.json("simulate", case, "--set", "microbatches=8")
        self.assertAlmostEqual(steps["iteration_time_s"], 4 * one["iteration_time_s"], places=9)
        self.assertEqual(steps["samples_per_update"], whole["samples_per_update"])
        self.assertLess(whole["iteration_time_s"], steps["iteration_time_s"])
        said = self.run_it("simulate", case, "--set", "accumulation_steps=4").stdout
        self.assertIn("32 microbatches per update in 4 accumulation steps", said)
        self.assertRegex(said, r"would leave 27.3 %: \(p-1\)/\(m\+p-1\) per accumulation step")

    def test_what_does_not_divide_is_refused(self):
        case = self.file(self.CASE)
        done = self.run_it("simulate", case, "--set", "accumulation_steps=5", code=2)
        self.assertIn("the nearest numbers that divide them: 4 and 8", done.stderr)
        done = self.run_it("simulate", case, "--set", "accumulation_steps=2", "--set",
                           "schedule=pipedream-2bw", code=2)
        self.assertIn("leave out accumulation_steps", done.stderr)


class Memory(Case):
    CASE = ["llama-3-70b-h100", "--stack", "none", "--set", "split=balanced"]

    def test_the_reason_is_of_the_fullest_device(self):
        for row in self.json("compare", *self.CASE, "--over", "schedule=1f1b,zb-v,gpipe"):
            peaks = [d["peak_memory_bytes"] for d in row["devices"]]
            fullest = peaks.index(max(peaks))
            self.assertRegex(row["infeasible_because"][0], rf" devices? {fullest}(,[\d,]+)? needs")

    def test_a_balanced_split_that_does_not_fit_names_one_that_does(self):
        table = self.run_it("compare", *self.CASE, "--over", "schedule=1f1b,v-half").stdout
        named = re.search(r"split: (\[.*\]) would fit; without it layers are split by time",
                          table)
        self.assertIsNotNone(named, table)
        result = self.json("simulate", *self.CASE)
        self.assertFalse(result["feasible"])
        self.assertTrue(any(f"split: {named[1]}" in a["change"] for a in result["what_to_change"]), result["what_to_change"])
        fits = self.json("simulate", *self.CASE[:3], "--set", f"split={named[1]}")
        self.assertTrue(fits["feasible"])
        self.assertEqual(sum(sum(d["layers"]) for d in fits["devices"][:4]), 80)


class Batch(Case):
    def test_rows_of_other_batches_are_named(self):
        sets = ["gpt-2.2b-flush", "--over", "width=1,2", "--set", "stages=4"]
        done = self.run_it("sweep", *sets)
        self.assertRegex(done.stdout, r"batch")
        self.assertRegex(done.stderr, r"rows differ in their batch: \d+ to \d+ samples per update")
        table = self.run_it("compare", *sets).stdout
        self.assertIn("the batches differ", table)

    def test_what_was_tried_of_a_large_run_is_not_said_to_be_left_out(self):
        """Of a job as large as GPT-3's some of what can be changed is tried, and how many are not is said."""
        script = ("run --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --bf16 --vocab-size 51200 "
                  "--micro-batch-size 1 --global-batch-size {} --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 "
                  "--sequence-parallel --use-distributed-optimizer --nnodes 128 --nproc-per-node 8")
        for batch, helps in ((2048, True), (8192, False)):
            text = self.run_it("import", "megatron-args", "-", "--cluster", "dgx-a100", stdin=script.format(batch)).stdout
            said = self.run_it("simulate", self.file(text), "--engine", "auto").stdout
            self.assertEqual("update time" in said, helps, said)
            self.assertRegex(said, r"not tried: \d+ of \d+ runs with something changed, to save time \(--advice full\)")

    def test_degrees_that_vary_with_one_width_say_how_to_free_it(self):
        sweep = ["sweep", "llama-3-70b-h100", "--set", "split=balanced", "--over", "tensor=4,8", "--over", "stages=4,8"]
        said = self.run_it(*sweep).stderr
        self.assertEqual(said.count("need more GPUs than there are"), 1, said)
        width, where = re.search(r"with --over (width=1:64) --where '(.*)' every row has all", said).groups()
        free = self.run_it(*sweep, "--over", width, "--where", where).stderr
        self.assertIn(" 0 refused", free)
        self.assertNotIn("pipeline.width", free)
        self.assertNotIn("pipeline.width", self.run_it(*sweep[:4], "--over", "width=1,8").stderr)

    def test_a_given_batch_is_the_same_for_all_rows(self):
        case = self.file("model: gpt-355m\nstack: none\ncluster: {base: p3.16xlarge, nodes: 4}\n"
                         "schedule: 1f1b\n"
                         "pipeline: {stages: 8, recompute: full, global_batch_size: 64}\n")
        over = ["--over", "stages=2,4,8", "--over", "width=1,2,4",
                "--over", "microbatch_size=1,2,4"]
        done = self.run_it("sweep", case, *over, "-o", "rows.jsonl")
        self.assertNotIn("rows differ", done.stderr)
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        fine = [r for r in rows if r["status"] == "ok"]
        self.assertGreater(len(fine), 5)
        for row in fine:
            self.assertEqual(row["samples_per_update"], 64)
            self.assertEqual(row["microbatches"] * row["microbatch_size"] * int(row["width"]), 64)


class Optimistic(Case):
    """Microbatches smaller than the efficiency curve knows, wherever rows are ranked."""

    SMALL = ("model: gpt-355m\nstack: none\ncluster: {base: p3.16xlarge, nodes: 1}\nschedule: 1f1b\n"
             "pipeline: {stages: 4, recompute: full, global_batch_size: 64}\n")

    def test_a_sweep_marks_its_rows(self):
        case = self.file(self.SMALL)
        done = self.run_it("sweep", case, "--over", "microbatch_size=1,2,4,8")
        marked = {line.split()[0]: "*" in line for line in done.stdout.splitlines()
                  if re.match(r" +[1248]  ", line)}
        self.assertEqual(marked, {"1": True, "2": True, "4": True, "8": False}, done.stdout)
        self.assertIn("*: microbatches smaller than", done.stdout)
        large = self.run_it("sweep", case, "--over", "microbatch_size=8,16").stdout
        self.assertNotIn("*", large)

    def test_a_plan_marks_its_rows(self):
        options = ["--cluster", "p3.16xlarge", "--batch", "64", "--search", "full", "--effort",
                   "20", "--stages", "4"]
        text = self.run_it("plan", "gpt-355m", *options, "--microbatch-size", "1").stdout
        self.assertRegex(text, r"[0-9]\*  ")
        self.assertIn("*: microbatches smaller than", text)
        plan = self.json("plan", "gpt-355m", *options, "--microbatch-size", "8")
        self.assertEqual({p["optimistic"] for p in plan["plans"]}, {False})


class Replicas(Case):
    def test_a_table_is_of_one_pipeline_however_many_there_are(self):
        for schedule in ("1f1b", "dualpipe"):
            export = ["schedule", "export", schedule, "--to", "torch-csv-comms", "--set",
                      "stages=4", "--set", "microbatches=8"]
            self.assertEqual(self.run_it(*export, "--set", "width=2").stdout,
                             self.run_it(*export).stdout)

    def test_a_list_of_widths_has_a_stage_for_each(self):
        case = self.file(COSTS + "schedule: 1f1b\npipeline: {width: [1, 2], microbatches: 4}\n")
        self.assertEqual(len(self.json("simulate", case)["devices"]), 3)


class Several(Case):
    GOOD = COSTS + "schedule: 1f1b\npipeline: {stages: 2, microbatches: 4}\n"

    def test_compare_leaves_out_what_is_wrong(self):
        good, bad = self.file(self.GOOD), self.file(self.GOOD.replace("1f1b", "1f1"), "bad.yaml")
        done = self.run_it("compare", bad, good, "--format", "json", code=2)
        self.assertEqual(len(json.loads(done.stdout)), 1)
        self.assertIn("did you mean '1f1b'?", done.stderr)
        self.assertIn("1 of 2 were left out", done.stderr)
        none = self.run_it("compare", bad, code=2)
        self.assertEqual(none.stdout, "")

    def test_compare_says_once_what_is_wrong_at_every_point(self):
        bad = self.file(self.GOOD.replace("stages: 2", "stages: two"))
        done = self.run_it("compare", bad, "--over", "schedule=1f1b,gpipe,zb-h1", code=2)
        self.assertEqual(done.stderr.count("'stages' must be"), 1, done.stderr)
        good = self.file(self.GOOD)
        done = self.run_it("compare", good, "--over", "schedule=gpipe,pipedream,1f1b", code=2)
        self.assertEqual(done.stderr.count("at schedule="), 1)
        self.assertIn("at schedule=pipedream: ", done.stderr)

    def test_compare_over_a_key(self):
        good = self.file(self.GOOD)
        results = self.json("compare", good, "--over", "schedule=1f1b,zb-h1", "--over",
                            "microbatches=4,8")
        self.assertEqual([r["overrides"] for r in results],
                         [["schedule=1f1b", "pipeline.microbatches=4"],
                          ["schedule=1f1b", "pipeline.microbatches=8"],
                          ["schedule=zb-h1", "pipeline.microbatches=4"],
                          ["schedule=zb-h1", "pipeline.microbatches=8"]])
        alone = self.json("simulate", good, "--set", "schedule=zb-h1", "--set", "microbatches=8")
        self.assertEqual(results[3]["makespan_s"], alone["makespan_s"])
        self.assertIn("at most 64 rows",
                      self.run_it("compare", good, "--over", "microbatches=1:99", code=2).stderr)

    def test_a_stacks_capacity_says_what_it_is_made_of(self):
        job = self.file("model: llama-3-8b\nstack: none\ncluster: dgx-h100\nschedule: 1f1b\n"
                        "pipeline: {stages: 2, tensor: 4, microbatches: 4}\n")
        of_stack = self.json("simulate", job, "--set", "stack=nanotron")
        has = (81559 * 2**20 - 2e9) * (1 - 0.009)
        self.assertAlmostEqual(of_stack["devices"][0]["capacity_bytes"], has, delta=1)
        roomy = self.json("simulate", job, "--set", "stack=nanotron", "--set", "recompute=full")
        self.assertNotIn("jobs can use", "".join(roomy["notes"]))
        full = self.json("simulate", job, "--set", "stack=nanotron", "--set", "microbatch_size=16")
        (note,) = [note for note in full["notes"] if "jobs can use" in note]
        self.assertEqual(note, "jobs can use 77.1 GiB of a GPU's 79.6 GiB: 1.86 GiB are reserved, the allocator loses 0.9 % ('nanotron')")
        of_device = self.json("simulate", job, "--set", "stack=torchtitan", "--set", "microbatch_size=16")
        self.assertNotIn("jobs can use", "".join(of_device["notes"]))  # whose numbers are the device's own

    def test_validate_leaves_out_what_is_wrong(self):
        good = self.file(self.GOOD)
        for name in ("a.json", "b.json"):
            self.run_it("replay", good, "--clock", "virtual", "--record", name)
        runs = self.folder / "runs"
        runs.mkdir()
        text = (self.folder / "a.json").read_text()
        (runs / "a.json").write_text(text)
        (runs / "bad.json").write_text(text[:len(text) // 2])
        (runs / "worse.json").write_text("\0" * 4096)  # what a crash of the machine leaves
        (runs / "other.json").write_text('{"of": "something else"}')
        (self.folder / "b.json").rename(runs / "b.json")
        done = self.run_it("validate", "runs", "--format", "json", code=2)
        self.assertEqual(len(json.loads(done.stdout)["rows"]), 2)
        self.assertIn("bad.json", done.stderr)
        self.assertIn("worse.json", done.stderr)
        self.assertIn("2 files left out", done.stderr)
        self.run_it("validate", "runs/bad.json", code=2)
        (runs / "bad.json").unlink()
        (runs / "worse.json").unlink()
        self.run_it("validate", "runs")

    def test_compare_reads_standard_input_once_for_all_points(self):
        rows = self.json("compare", "-", "--over", "microbatches=4,8", stdin=self.GOOD)
        self.assertEqual([r["scenario"] for r in rows], ["standard input"] * 2)
        self.assertNotEqual(rows[0]["makespan_s"], rows[1]["makespan_s"])

    def test_sweep_and_plan_read_standard_input(self):
        rows = self.run_it("sweep", "-", "--over", "microbatches=4,8", "--format", "csv",
                           stdin=self.GOOD).stdout
        self.assertEqual(rows.count(",ok"), 2, rows)
        text = (SOURCE / "scenarios/gpt-2.2b-flush.yaml").read_text()
        plan = self.json("plan", "-", "--search", "full", "--effort", "5", stdin=text)
        self.assertEqual(plan["batch"], 64)
        self.assertTrue(plan["plans"])
        self.run_it("plan", "-", "--search", "2bw", stdin=text)
        self.assertIn("as simulate, compare, sweep and plan do",
                      self.run_it("export", "-", "--to", "layout", code=2).stderr)

    def test_a_second_recording_is_no_scenario(self):
        recorded = sorted((SOURCE / "traces/recorded/host").glob("*.json.gz"))[:2]
        said = self.run_it("validate", *map(str, recorded), code=2).stderr
        self.assertIn("is a recording, and the second file is the scenario", said)
        self.assertIn("validate each, or give a folder", said)
        case = self.file(self.GOOD)
        said = self.run_it("validate", case, str(recorded[0]), code=2).stderr
        self.assertIn(f"did you mean `penstock validate {recorded[0]} {case}`?", said)

    def test_a_sweep_says_which_rates_are_no_steady_states(self):
        good = self.file(self.GOOD)
        short = ["sweep", good, "--over", "schedule=1f1b,pipedream-2bw", "--set", "microbatches=4"]
        told = self.run_it(*short, "--set", "batches=1", "-o", "short.csv").stdout
        self.assertEqual(told.count("+\n") + told.count("+ "), 1, told)
        self.assertIn("too few batches for a steady state", told)
        told = self.run_it(*short, "-o", "long.csv").stdout  # as many as it needs
        self.assertNotIn("steady state", told)

    def test_simulate_reads_standard_input(self):
        good = self.file(self.GOOD)
        self.assertEqual(self.json("simulate", "-", "--reproducible", stdin=self.GOOD)["makespan_s"],
                         self.json("simulate", good)["makespan_s"])
        wrong = self.run_it("simulate", "-", stdin="schedule: 1f1\n", code=2)
        self.assertIn("standard input:1", wrong.stderr)


class Launchers(Case):
    def test_exported_arguments_come_back(self):
        for name in ("llama-3-70b-h100", "gpt3-175b-tensor", "gpt3-175b-1f1b"):
            if not (SOURCE / "scenarios" / f"{name}.yaml").exists():
                continue
            text = self.run_it("export", name, "--to", "megatron-args").stdout
            again = self.run_it("import", "megatron-args", "-", stdin=text).stdout
            for flag in re.findall(r"(?m)--\S+", text):
                self.assertIn(f"#   {flag}", again)
            self.assertNotIn("# not known", again)
            self.assertNotIn("# cannot be modelled", again)
            self.file(again)
            back = self.run_it("export", "case.yaml", "--to", "megatron-args").stdout
            self.assertEqual(sorted(back.split("\n")), sorted(text.split("\n")), name)


class Traps(Case):
    """Answers that were right by their own words and wrong for who asked."""

    LLAMA = ("model: llama-3-8b\nstack: none\ncluster: {base: dgx-h100, nodes: 1}\nschedule: 1f1b\n"
             "pipeline: {stages: 8, microbatches: 16}\n")
    SCRIPT = ("--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
              "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 16 "
              "--pipeline-model-parallel-size 4 --bf16 --use-distributed-optimizer --vocab-size 50257")

    def test_given_costs_of_other_stages_and_microbatches_are_other_work(self):
        case = self.file(COSTS + "schedule: 1f1b\n"
                         "pipeline: {stages: 4, global_batch_size: 32}\n")
        for key, other in (("stages", "2,4"), ("microbatch_size", "1,2")):
            table = self.run_it("compare", case, "--over", f"{key}={other}").stdout
            self.assertRegex(table, r"the work differs, .* of forward per sample")
            self.assertIn("the work differs", self.run_it("sweep", case, "--over",
                                                          f"{key}={other}").stderr)
        for over in ("schedule=1f1b,zb-v", "width=1,2", "model.forward=8 ms,9 ms"):
            done = self.run_it("sweep", case, "--over", over)
            self.assertNotIn("the work differs", done.stdout + done.stderr, over)
        self.assertNotIn("the work differs", self.run_it(
            "compare", case, "--over", "model.forward=8 ms,9 ms").stdout)
        self.assertNotIn("the work differs", self.run_it(
            "compare", self.file(self.LLAMA), "--over", "microbatch_size=1,2").stdout)

    def test_a_bubble_that_none_can_avoid_counts_the_optimizer_step_as_work(self):
        """Equal stages and free transfers: what would be left is what there is."""
        case = self.file("model: {forward: 10 ms, backward: 20 ms, step: 30 ms}\n"
                         "schedule: 1f1b\npipeline: {stages: 4, microbatches: 8}\n")
        for step, bubble in (("30 ms", "25.0 %"), ("0 ms", "27.3 %")):  # 90 of 360, of 330
            text = self.run_it("simulate", case, "--set", f"model.step={step}").stdout
            self.assertIn(f"bubble {bubble} of the", text)
            self.assertIn(f"free transfers would leave {bubble}:", text)
            self.assertEqual("the optimizer step is work, too" in text, step != "0 ms")

    def test_what_would_help_names_all_that_it_sets(self):
        seen = 0
        for sets in ([], ["schedule=zb-v"], ["global_batch_size=64"], ["tensor=2", "stages=4"]):
            changes = [word for s in sets for word in ("--set", s)]
            result = self.json("simulate", self.file(self.LLAMA.replace(
                "microbatches: 16", "microbatches: 16, microbatch_size: 2")
                if not any("batch" in s for s in sets) else self.LLAMA.replace(
                    "microbatches: 16", "microbatch_size: 2")), *changes)
            seen += len(result["what_to_change"])
            for advice in result["what_to_change"]:
                for key in advice["set"]:
                    name, value = key.split("=", 1)
                    name = name.split(".")[-1]
                    words = {"stages": f"{value} stages", "tensor": f"tensor {value}",
                             "width": f"width {value}", "chunks": f"{value} chunk",
                             "microbatch_size": f"microbatches of {value}"}
                    self.assertIn(words.get(name, f"{name}: {value}"), advice["change"])
        self.assertGreater(seen, 4)

    def test_a_listed_split_makes_room_for_the_head(self):
        case = self.file(self.LLAMA.replace("stages: 8", "stages: 8, "
                                            "split: [5, 5, 4, 4, 4, 4, 4, 2]"))
        one, v = self.json("compare", case, "--over", "schedule=1f1b,zb-v")
        self.assertLess(v["iteration_time_s"], one["iteration_time_s"])

    def test_an_imported_job_goes_to_every_schedule(self):
        case = self.run_it("import", "megatron-args", "-", stdin=self.SCRIPT).stdout
        self.assertIn("transfers: coupled", case)
        self.assertIn("distributed_optimizer: true", case)
        names = ["1f1b", "interleaved-1f1b", "zb-v", "dualpipev"]
        rows = self.json("compare", self.file(case), "--over", "schedule=" + ",".join(names))
        self.assertEqual([(r["schedule"], r["transfers"]) for r in rows],
                         [("1f1b", "coupled")] + [(n, "overlapped") for n in names[1:]])

    def test_megatron_without_overlap_runs(self):
        script = (self.SCRIPT +
                  " --num-layers-per-virtual-pipeline-stage 2 --no-overlap-p2p-communication")
        case = self.run_it("import", "megatron-args", "-", stdin=script)
        self.assertIn("--no-overlap-p2p-communication: messages", case.stdout)
        self.json("simulate", "-", stdin=case.stdout)

    def test_chunks_may_be_more_than_layers(self):
        case = self.file(self.LLAMA.replace("model: llama-3-8b",
                                            "model: {base: llama-3-8b, num_layers: 10}"))
        (v,) = self.json("compare", case, "--set", "split=balanced", "--over", "schedule=zb-v")
        self.assertEqual(sum(sum(d["layers"]) for d in v["devices"]), 10)
        done = self.run_it("simulate", case, "--set", "stages=16", "--set", "split=balanced",
                           "--set", "cluster.nodes=2", code=2)
        self.assertIn("10 layers cannot fill 16 stages", done.stderr)

    def test_plan_says_all_that_is_wrong_with_a_model_nobody_knows(self):
        done = self.run_it("plan", "llama-3-70bb", "--cluster", "dgx-h10", "--batch", "0",
                           "--headroom", "120%", "--schedule", "1f2b", code=2)
        for wrong in ("'llama-3-70bb'", "'dgx-h10'", "--batch", "--headroom", "'1f2b'"):
            self.assertIn(wrong, done.stderr)

    def test_every_option_nobody_knows_is_said(self):
        done = self.run_it("plan", "llama-3-70b", "--headrom=3", "--bacth", "4", "-x", code=2)
        self.assertEqual([line.split("'")[1] for line in done.stderr.splitlines()],
                         ["--headrom", "--bacth", "-x"])

    def test_a_table_of_runs_with_a_misspelt_column_is_named(self):
        rows = "gpu,layers,hidden,heads,vocab,sequence,dp,tp,microbatch,microbatches,iteration_s\n"
        self.file(rows + "h100,32,4096,32,50000,2048,1,1,1,8,1\n", "runs.csv")
        done = self.run_it("validate", ".", code=2)
        self.assertIn("column 'seq' is missing", done.stderr)


class Models(Case):
    """Files of models that other tools have."""
    MIXTURE = {"model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 3584,
               "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
               "vocab_size": 32000, "max_position_embeddings": 32768, "num_local_experts": 8,
               "num_experts_per_tok": 2, "hidden_act": "silu", "tie_word_embeddings": False,
               "torch_dtype": "bfloat16"}

    def test_a_mixture_of_experts_is_read_as_one(self):
        path = self.file(json.dumps(self.MIXTURE), "mixture.json")
        done = self.run_it("import", path, "-o", "mixture.yaml")
        self.assertNotIn("cannot be modelled", done.stderr)
        model = (self.folder / "mixture.yaml").read_text()
        for line in ("num_experts: 8", "experts_per_token: 2", "expert_ffn_hidden_size: 3584", 'name: "mixture"'):
            self.assertIn(line + "\n", model)
        self.assertNotIn("missing", model)
        job = "{{model: {}, cluster: dgx-h100, schedule: 1f1b, pipeline: {{stages: 2, microbatches: 8}}}}"
        read, written = (self.json("simulate", self.file(job.format(name), f"{name}.job.yaml"))
                         for name in ("mixture.json", "mixture.yaml"))
        self.assertEqual(read["parameters"], written["parameters"])
        self.assertEqual(read["iteration_time_s"], written["iteration_time_s"])
        self.assertIs(read["feasible"], True)

    def test_a_model_of_experts_has_all_their_weights_and_the_work_of_some(self):
        job = "{model: mixtral-8x7b, cluster: dgx-h200, schedule: 1f1b, pipeline: {stages: 8, microbatches: 8}}"
        mixture = self.json("simulate", self.file(job, "mixture.yaml"))
        more = self.json("simulate", "mixture.yaml", "--set", "model.experts_per_token=4")
        fewer = self.json("simulate", "mixture.yaml", "--set", "model.num_experts=4")
        self.assertEqual(mixture["parameters"], 46_702_792_704)
        self.assertEqual(more["parameters"], mixture["parameters"])
        self.assertGreater(more["iteration_time_s"], 1.3 * mixture["iteration_time_s"])
        self.assertLess(fewer["parameters"], 0.55 * mixture["parameters"])

    def test_what_is_left_out_is_not_said_to_need_as_much(self):
        script = ("run --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --vocab-size 50257 "
                  "--swiglu --bf16 --micro-batch-size 1 --global-batch-size 8 --num-experts 8 --expert-model-parallel-size 2 --optimizer-cpu-offload "
                  "--pipeline-model-parallel-size 2 --nnodes 1 --nproc-per-node 4")
        case = self.file(self.run_it("import", "megatron-args", "-", stdin=script).stdout)
        result = self.json("simulate", case)
        self.assertEqual(result["missing_saves"], "offloading")
        full = self.json("simulate", case, "--set", "model.num_layers=2000")
        self.assertIsNone(full["feasible"])

    def test_latents_and_further_tokens_are_read_or_named(self):
        more = {**self.MIXTURE, "n_routed_experts": 64, "n_shared_experts": 2, "kv_lora_rank": 512,
                "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
                "moe_intermediate_size": 512, "num_nextn_predict_layers": 1, "head_dim": 128}
        del more["num_local_experts"]
        text = self.run_it("import", self.file(json.dumps(more), "more.json")).stdout
        self.assertIn("latent_attention: {q_rank: 0, kv_rank: 512, rope_dim: 64, nope_dim: 128, value_dim: 128}\n", text)
        self.assertIn("shared_expert_ffn_hidden_size: 1024\n", text)
        self.assertIn("mtp_layers: 1 adds them", text)
        self.assertNotIn("head_dim: 128\n", text)

    def test_a_plan_says_which_length_it_took(self):
        dense = {k: v for k, v in self.MIXTURE.items() if "experts" not in k}
        path = self.file(json.dumps({**dense, "model_type": "llama"}), "dense.json")
        plan = ["--cluster", "dgx-h100", "--batch", "64", "--search"]
        note = "seq_length 32768 is the file's max_position_embeddings, the longest"
        full = self.run_it("plan", path, *plan, "full", "--effort", "5").stdout
        self.assertIn("64 samples of 32768 tokens per update", full)
        self.assertIn(note, full)
        self.assertIn(note, self.run_it("plan", path, *plan, "2bw").stdout)
        told = self.run_it("plan", "{base: dense.json, seq_length: 4096}", *plan, "full",
                           "--effort", "5").stdout
        self.assertIn("64 samples of 4096 tokens per update", told)
        self.assertNotIn(note, told)


class Advice(Case):
    def test_what_to_change_is_what_it_says(self):
        result = self.json("simulate", "gpt-2.2b-flush")
        self.assertTrue(result["what_to_change"])
        for advice in result["what_to_change"]:
            sets = [w for s in advice["set"] for w in ("--set", s)]
            changed = self.json("simulate", "gpt-2.2b-flush", *sets)
            self.assertEqual(changed["samples_per_update"], result["samples_per_update"])
            self.assertAlmostEqual(
                result["throughput_samples_per_s"] / changed["throughput_samples_per_s"],
                advice["iteration_time_ratio"], places=9)
            self.assertTrue(changed["feasible"])

    def test_a_profile_of_unknown_samples_is_no_faster_in_larger_microbatches(self):
        rows = "".join(f"layer {i},3 ms,6 ms,16 MiB,96 MiB\n" for i in range(7))
        table = self.file("layer,forward,backward,activation,parameters\n" + rows, "layers.csv")
        case = (f"cluster: {{devices: 4, link: 10 GB/s}}\nschedule: gpipe\n"
                "pipeline: {stages: 4, microbatches: 8, split: balanced}\n")

        def changes(model):
            result = self.json("simulate", self.file(f"model: {model}\n" + case))
            self.assertTrue(result["what_to_change"])
            return [a["change"] for a in result["what_to_change"]]

        self.assertFalse([c for c in changes(table) if "microbatch" in c])
        told = changes(f"{{profile: {table}, profile_batch: 4}}")  # a quarter of the work
        self.assertTrue(told)

    def test_the_two_are_of_different_kinds(self):
        script = ("run --num-layers 48 --hidden-size 6144 --num-attention-heads 48 --seq-length 2048 "
                  "--micro-batch-size 1 --global-batch-size 32 --bf16 --vocab-size 50257 --tensor-model-parallel-size 2 "
                  "--pipeline-model-parallel-size 8 --recompute-granularity full "
                  "--recompute-method uniform --recompute-num-layers 1 --nnodes 2 --nproc-per-node 8")
        text = self.run_it("import", "megatron-args", "-", stdin=script).stdout
        result = self.json("simulate", "-", stdin=text)
        keys = [a["set"][0].split("=")[0] for a in result["what_to_change"]]
        self.assertEqual(len(keys), 2)
        self.assertEqual(len(set(keys)), 2, result["what_to_change"])
        interleaved = self.run_it("simulate", "-", "--set", "schedule=interleaved-1f1b", "--set",
                                  "pipeline.chunks=2", "--set", "transfers=overlapped",
                                  stdin=text).stdout
        self.assertIn("interleaved-1f1b", interleaved)

    def test_tensor_degree_and_replicas_are_traded(self):
        case = self.file("model: gpt-1.3b\nstack: none\ncluster: dgx-a100\nschedule: 1f1b\n"
                         "pipeline: {stages: 1, tensor: 8, width: 1, microbatch_size: 4, "
                         "global_batch_size: 64}\n")
        result = self.json("simulate", case)
        advice = result["what_to_change"][0]
        self.assertEqual(advice["set"], ["pipeline.tensor=4", "pipeline.width=2"], result)
        self.assertLess(advice["iteration_time_ratio"], 1)

    def test_what_does_not_fit_is_told_what_would(self):
        sets = ["--set", "recompute=none", "--set", "microbatch_size=8"]
        result = self.json("simulate", "gpt-2.2b-flush", *sets)
        self.assertFalse(result["feasible"])
        self.assertTrue(all(a["makes_it_fit"] for a in result["what_to_change"]))
        self.assertTrue(result["what_to_change"])
        for advice in result["what_to_change"]:
            change = [word for key in advice["set"] for word in ("--set", key)]
            self.assertTrue(self.json("simulate", "gpt-2.2b-flush", *sets, *change)["feasible"], advice)

        table = self.run_it("simulate", "gpt-2.2b-flush", *sets).stdout
        self.assertRegex(table, r"Would help\?  .*: fits, update time [+-]")

    def test_what_replicas_hold_twice_is_shared_before_all_else(self):
        for key in ("sequence_parallel", "distributed_optimizer"):
            result = self.json("simulate", "llama-3-70b-h100", "--set", f"{key}=false")
            self.assertFalse(result["feasible"])
            self.assertIn(f"{key}: true", result["what_to_change"][0]["change"])

    def test_what_is_faster_and_does_not_fit_gets_a_split_that_does(self):
        result = self.json("simulate", "llama-3-70b-h100", "--stack", "none", "--set", "split=balanced", "--set",
                           "recompute=full")
        self.assertRegex(result["what_to_change"][0]["change"], r"^recompute: none, split: \[")
        self.assertLess(result["what_to_change"][0]["iteration_time_ratio"], 0.8)

    def test_where_nothing_helps_that_is_said(self):
        done = self.run_it("simulate", "small-1f1b").stdout
        self.assertNotIn("computes 10 % faster: no change", done)


class Plan(Case):
    def test_full_searches_sequence_parallelism_and_zero_1(self):
        plan = self.json("plan", "llama-3-8b", "--cluster", "{base: dgx-h100, nodes: 2}", "--batch",
                         "64", "--search", "full", "--effort", "200", "--stages", "2")
        best = plan["plans"][0]
        self.assertIn("sequence_parallel", best)
        self.assertTrue(best["distributed_optimizer"] or best["width"] == 1)
        text = self.run_it("plan", "llama-3-8b", "--cluster", "{base: dgx-h100, nodes: 2}",
                           "--batch", "64", "--search", "full", "--effort", "50", "--stages",
                           "2").stdout
        self.assertNotRegex(text, r"(?m)^not searched: .*ZeRO")

    def test_context_parallelism_is_shown_and_kept_by_plans(self):
        text = ("model: {base: llama-3-8b, seq_length: 131072}\nstack: none\ncluster: {base: dgx-h100, nodes: 2}\n"
                "schedule: 1f1b\npipeline: {stages: 2, global_batch_size: 16, context: 4, tensor: 2, "
                "recompute: full}\n")
        shown = self.run_it("simulate", "-", stdin=text).stdout
        self.assertIn("2 stages of 8 GPUs (context 4 x tensor 2)", shown)
        self.assertRegex(shown, r"context \d+\.\d %( \(\d+\.\d % hidden\))?")
        for options, said in (
                (("--search", "full", "--effort", "5"),
                 r"(?m)^not searched: .*other degrees of context parallelism than 4"),
                (("--search", "2bw"), r"planned without the context parallelism of 4")):
            self.assertRegex(self.run_it("plan", self.file(text), *options).stdout, said)

    def test_the_same_plan_under_other_rank_orders_is_one(self):
        plan = self.json("plan", "llama-3-8b", "--cluster", "{base: dgx-h100, nodes: 2}", "--batch",
                         "64", "--search", "full", "--effort", "200", "--stages", "2", "--top",
                         "20")
        rows = [tuple(str(p.get(k)) for k in ("schedule", "depth", "chunks", "width", "tensor",
                                              "microbatch_size", "sequence_parallel",
                                              "distributed_optimizer")) for p in plan["plans"]]
        self.assertGreater(len(rows), 2)
        self.assertEqual(len(set(rows)), len(rows), rows)

    def test_what_each_kind_of_gpu_reaches_alone(self):
        mixed = ("{inter: 100 Gbps, groups: [{base: dgx-a100, nodes: 1}, "
                 "{base: p3.16xlarge, nodes: 1}]}")
        # So many evaluations that both searches end with the best of what they look at.
        options = ["--batch", "64", "--search", "full", "--effort", "200", "--schedule", "1f1b"]
        plan = self.json("plan", "gpt-1.3b", "--cluster", mixed, *options)
        self.assertEqual([(k["device"], k["gpus"]) for k in plan["alone"]],
                         [("A100-80", 8), ("V100-16", 8)])
        alone = self.json("plan", "gpt-1.3b", "--cluster", "{base: dgx-a100, inter: 100 Gbps}",
                          *options)
        self.assertAlmostEqual(plan["alone"][0]["throughput_samples_per_s"],
                               alone["plans"][0]["throughput_samples_per_s"], delta=1e-6)
        text = self.run_it("plan", "gpt-1.3b", "--cluster", mixed, *options, "--report",
                           "plan.html").stdout
        self.assertRegex(text, r"(?m)^the 8 A100-80 alone: \S+ samples/s \(1f1b, .*\); plan 1 is "
                               r"\S+ % (faster|slower)$")
        page = (self.folder / "plan.html").read_text()
        self.assertIn("the 8 A100-80 alone", page)

    def test_a_page_says_which_plans_are_optimistic(self):
        self.run_it("plan", "gpt-1.3b", "--cluster", "dgx-a100", "--batch", "8", "--search", "full", "--effort", "20",
                    "--schedule", "1f1b", "--report", "plan.html")
        self.assertIn("*: microbatches smaller than the device", (self.folder / "plan.html").read_text())

    def test_every_wrong_choice_is_named(self):
        said = self.run_it("plan", "llama-3-8b", "--objective", "fast", "--recompute", "some",
                           "--format", "xml", "--search", "ful", code=2).stderr
        for option in ("--objective: must be one of", "--recompute: must be one of",
                       "--format: must be one of", "--search: must be one of"):
            self.assertIn(option, said)


if __name__ == "__main__":
    case = sys.argv.pop(1) if len(sys.argv) > 1 else None
    unittest.main(defaultTest=case)
