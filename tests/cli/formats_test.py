# SPDX-License-Identifier: Apache-2.0
"""What goes in and out: tables of torch.distributed.pipelining, Megatron's layouts and flags,
Chakra and GOAL, each against an independent reader.

Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE. One class of cases may be named as an argument;
UPDATE_GOLDEN=1 rewrites golden/ and marks the run skipped.
"""

import gzip
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
import activity_graphs
import torch_tables
import transcripts

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
RECORDED = pathlib.Path(os.environ.get("PENSTOCK_SHARED", "../shared")) / "oracles" / "schedules"
ENVIRONMENT = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "PENSTOCK_HOME": str(SOURCE),
                            "LC_ALL": "C.UTF-8"}
SHAPES = [(1, 3), (2, 1), (2, 4), (3, 6), (4, 8), (8, 16)]  # devices, microbatches


def run(*arguments, cwd=SOURCE):
    return subprocess.run([BINARY, *arguments], cwd=cwd, env=ENVIRONMENT, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=120)


def schedules():
    return [row["name"] for row in json.loads(run("schedule", "list", "--format", "json").stdout)]


def recorded(name):
    """The cases of a recorded file that have an order."""
    path = RECORDED / f"{name}.jsonl.gz"
    if not path.exists():
        raise unittest.SkipTest(f"no {path}")
    with gzip.open(path, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    return [c for c in cases if c.get("order")]


def csv_of(rows):
    """Rows of tokens with blanks between them, as the recorded files have them."""
    return "".join(",".join(row.split()) + "\n" for row in rows)


def lowered_by_the_rules(text):
    return torch_tables.write(torch_tables.lower(torch_tables.read(text)))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ok(self, *arguments, cwd=SOURCE, note=""):
        """What a command prints; `note`: what it may say beside that."""
        done = run(*arguments, cwd=cwd)
        if arguments[0] == "export" and "megatron-args" in arguments:
            note = note or r"note: no flag says these, so they are left out: .*\n"
        self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        self.assertRegex(done.stderr, rf"^({note})?$", arguments)
        return done.stdout

    def fails(self, *arguments, cwd=SOURCE):
        done = run(*arguments, cwd=cwd)
        self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        return done.stderr

    def file(self, text, name="order.csv"):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def checked(self, table):
        """What `schedule check` says of a table that is right."""
        return json.loads(self.ok("schedule", "check", self.file(table), "--format", "json"))

    def golden(self, name, text):
        transcripts.expect(self, name, text)


class Tables(Case):
    def lowered(self, path):
        return self.ok("schedule", "export", path, "--to", "torch-csv-comms")

    NOTE = "note: a table does not say (when weights are updated|which microbatches .*)\n"

    def test_a_table_has_no_backward_of_many_microbatches(self):
        for name in ("timeprest", "v-timeprest", "i-timeprest"):
            self.assertIn("one for all of an update", self.fails("schedule", "export", name))

    def test_every_schedule_is_lowered_by_the_rules(self):
        for name in schedules():
            accepted = 0
            for devices, microbatches in SHAPES:
                set_ = ["--set", f"stages={devices}", "--set", f"microbatches={microbatches}"]
                plain = run("schedule", "export", name, *set_)
                if plain.returncode != 0:
                    self.assertEqual((plain.returncode, plain.stdout), (2, ""), plain.stderr)
                    continue
                accepted += 1
                with self.subTest(schedule=name, devices=devices, microbatches=microbatches):
                    rows = torch_tables.read(plain.stdout)
                    self.assertEqual(torch_tables.write(rows), plain.stdout)
                    comms = self.ok("schedule", "export", name, "--to", "torch-csv-comms", *set_,
                                    note=self.NOTE)
                    self.assertEqual(comms, torch_tables.write(torch_tables.lower(rows)))
                    self.assertTrue(torch_tables.runs(torch_tables.read(comms)))
            if accepted == 0 and not name.endswith("timeprest"):  # of one stage, or of one microbatch
                plain = self.ok("schedule", "export", name, note=self.NOTE)
                comms = self.ok("schedule", "export", name, "--to", "torch-csv-comms",
                                note=self.NOTE)
                self.assertEqual(comms, lowered_by_the_rules(plain))

    def test_torchs_own_lowering_is_reproduced(self):
        count = 0
        for case in recorded("torch_pipelining_2.14.1"):
            if "comms" not in case:
                continue
            count += 1
            with self.subTest(schedule=case["schedule"], p=case["p"], m=case["m"], v=case["v"]):
                text = csv_of(case["order"])
                self.assertEqual(self.lowered(self.file(text)), csv_of(case["comms"]))
                self.assertEqual(lowered_by_the_rules(text), csv_of(case["comms"]))
                self.ok("schedule", "check", self.file(csv_of(case["comms"])))
        self.assertGreater(count, 50)

    def test_mirrored_tables_are_lowered_and_run(self):
        for case in recorded("deepseek_dualpipe"):
            with self.subTest(schedule=case["schedule"], p=case["p"], m=case["m"]):
                text = csv_of(case["order"])
                comms = self.lowered(self.file(text))
                self.assertEqual(comms, lowered_by_the_rules(text))
                self.assertTrue(torch_tables.runs(torch_tables.read(comms)))
                result = self.checked(comms)
                self.assertEqual(result["mirrored"], case["schedule"] == "dualpipe")
                # as DualPipe's own code sends: [..] is one batch
                own = [row.replace("[", "").replace("]", "") for row in case["with_comm"]]
                self.ok("schedule", "check", self.file(csv_of(own)), "--format", "json")

    def test_a_table_comes_out_as_it_went_in(self):
        text = "0F0,0F1,,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n"
        self.assertEqual(self.ok("schedule", "export", self.file(text)), text)
        self.assertEqual(self.ok("schedule", "export", self.file(text.replace("\n", "\r\n"))), text)
        self.assertEqual(self.ok("schedule", "export", self.file(text.replace(",", " , "))), text)
        result = self.checked(text)
        self.assertEqual([row["empty_cells"] for row in result["rows"]], [3, 1])

    def test_a_small_table_with_communication(self):
        self.golden("torch-csv-comms-1f1b.csv", self.ok(
            "schedule", "export", "1f1b", "--to", "torch-csv-comms", "--set", "stages=3", "--set",
            "microbatches=3"))

    def test_a_scenario_is_exported_as_its_schedule_is(self):
        text = self.ok("export", "scenarios/small-1f1b.yaml", "--to", "torch-csv")
        self.assertEqual(text, self.ok("schedule", "export", "1f1b", "--set", "stages=4", "--set",
                                       f"microbatches={len(re.findall('F', text)) // 4}"))


class Check(Case):
    def test_every_recorded_deadlock_is_diagnosed_with_a_blocked_op(self):
        count = 0
        for name in ("torch_pipelining_2.14.1", "megatron_interleaved"):
            for case in recorded(name):
                if not case["ref"].get("deadlock"):
                    continue
                count += 1
                with self.subTest(schedule=case["schedule"], p=case["p"], m=case["m"]):
                    text = self.fails("schedule", "check", self.file(csv_of(case["order"])))
                    blocked = {re.sub(r"\('(\w)', (\d+), (\d+)\)", r"\2\1\3", at)
                               for at in case["ref"]["at"]}
                    named = set(re.findall(r"is stuck before '(\w+)'", text))
                    self.assertTrue(named)
                    self.assertLessEqual(named, blocked)
        self.assertGreater(count, 20)

    def test_recorded_orders_run_and_hold_what_was_recorded(self):
        for name in ("torch_pipelining_2.14.1", "megatron_interleaved", "sail_zb_ilp",
                     "deepseek_dualpipe", "sail_v_adaptive_search"):
            for case in recorded(name)[::3]:
                if case["ref"].get("deadlock"):
                    continue
                with self.subTest(schedule=case["schedule"], p=case["p"], m=case["m"]):
                    result = self.checked(csv_of(case["order"]))
                    self.assertEqual([row["peak_activations"] for row in result["rows"]],
                                     case["ref"]["peak_act_chunks"])
                    self.assertEqual((result["devices"], result["stages"], result["microbatches"]),
                                     (case["p"], case["n_stages_total"], case["m"]))
                    if (case["f"], case["b"], case["w"], case["c"]) == (1, 1, 1, 0):
                        self.assertEqual(result["makespan"], case["ref"]["makespan"])

    def test_tables_with_a_message_elsewhere_run_when_the_slow_way_says_so(self):
        rng = random.Random(7)
        seen = {True: 0, False: 0}
        shape = ("--set", "stages=3", "--set", "microbatches=4")
        orders = [self.ok("schedule", "export", name, "--to", "torch-csv-comms", *shape)
                  for name in ("1f1b", "gpipe")]
        for _ in range(120):
            rows = torch_tables.read(rng.choice(orders))
            row = rng.choice(rows)
            messages = [i for i, cell in enumerate(row) if "_" in cell[0][1] and
                        cell[0][1] != "REDUCE_GRAD"]
            i, j = rng.choice(messages), rng.choice(range(len(row)))
            row.insert(j, row.pop(i))
            text = torch_tables.write(rows)
            done = run("schedule", "check", self.file(text), "--format", "json")
            runs = torch_tables.runs(rows)
            self.assertEqual(json.loads(done.stdout)["ok"], runs, text + done.stdout)
            self.assertEqual(done.returncode, 0 if runs else 2)
            seen[runs] += 1
        self.assertGreater(min(seen.values()), 10, seen)

    def test_all_errors_are_reported_at_once(self):
        self.file("0F0,0F1,0X0,0B0,,0B1,0B1\n1F0,1I0,1F1,1B1,F3,2F0\n", "wrong.csv")
        self.golden("schedule-check-wrong.txt", self.fails("schedule", "check", "wrong.csv",
                                                           cwd=self.folder))

    def test_errors_as_json_and_csv(self):
        self.file("0F0,0B0\n1F0\n", "wrong.csv")
        done = run("schedule", "check", "wrong.csv", "--format", "json", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (2, ""))
        result = json.loads(done.stdout)
        self.assertEqual((result["ok"], result["file"]), (False, "wrong.csv"))
        self.assertEqual({"line", "column", "message"}, set(result["errors"][0]))
        self.assertIn("stage 1 has no B, and no I, of microbatch 0",
                      [e["message"] for e in result["errors"]])
        done = run("schedule", "check", "wrong.csv", "--format", "csv", cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertTrue(done.stdout.startswith("line,column,message\n"))

    def test_a_right_table(self):
        self.file("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "right.csv")
        self.golden("schedule-check.txt",
                    self.ok("schedule", "check", "right.csv", cwd=self.folder))

    def test_what_hangs_with_one_channel_for_both_directions_is_noted(self):
        text = ("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n")
        self.assertIn("note: with one channel for both directions between devices 0 and 1",
                      self.ok("schedule", "check", self.file(text)))


class Layouts(Case):
    def test_a_layout_goes_into_a_scenario_and_comes_back(self):
        self.assertEqual(self.ok("import", "layout", "Et*2|(t,t|)*3tL"),
                         "# Et*2|(t*2|)*3,tL: 9 layers\npipeline:\n  stages: 5\n"
                         "  split: [2, 2, 2, 2, 1]\n")
        self.assertIn("  stages: 2\n  chunks: 2\n",
                      self.ok("import", "layout", "Et|t|t|tL", "--stages", "2"))
        text = self.ok("export", "scenarios/gpt-2.2b-flush.yaml", "--to", "layout").strip()
        split = re.search(r"split: \[.*\]", self.ok("import", "layout", text))[0]
        again = self.ok("export", "scenarios/gpt-2.2b-flush.yaml", "--to", "layout", "--set",
                        "pipeline.split=" + split.removeprefix("split: "))
        self.assertEqual(again.strip(), text)

    def test_what_a_layout_may_not_say(self):
        self.golden("import-layout-wrong.txt", self.fails("import", "layout", "Et*|(t|(x)*2T||tL"))
        self.assertIn("layout:1:2: a second embedding ('E')",
                      self.fails("import", "layout", "EE|tL"))
        self.assertIn("split: [1, 0, 1]", self.ok("import", "layout", "Et||tL"))
        self.assertIn("--stages: must divide the layout's 3 virtual stages (one of 1, 3), got '2'",
                      self.fails("import", "layout", "Et|t|tL", "--stages", "2"))
        self.assertIn("the layout is missing", self.fails("import", "layout"))
        self.assertIn("none of 'layout STRING', 'megatron-args FILE', 'nanotron-config FILE', 'torchtitan-config FILE', a FILE.csv", self.fails("import", "graph.pt"))
        self.assertIn("has no layers", self.fails("export", "scenarios/small-1f1b.yaml", "--to",
                                                  "layout"))

    def test_a_script_of_torchtitan_is_told_from_one_of_megatrons(self):
        script = self.folder / "run.sh"
        script.write_text("NGPU=8 ./run_train.sh --model.name llama3 --model.flavor 8B "
                          "--training.seq_len 4096 --training.local_batch_size 1\n")
        self.assertIn("by `penstock import torchtitan-config`", self.ok("import", str(script), note=r"note: [^}]*"))

    def test_megatron_arguments(self):
        self.golden("megatron-args-gpt3-175b.txt", self.ok(
            "export", "scenarios/gpt3-175b-1f1b.yaml", "--to", "megatron-args"))

    def test_megatron_arguments_of_uneven_stages_and_what_megatron_does_not_run(self):
        uneven = "[3,4,4,4,4,4,4,5]"
        text = self.ok("export", "scenarios/gpt-2.2b-flush.yaml", "--to", "megatron-args", "--set",
                       f"pipeline.split={uneven}", "--set", "recompute=selective")
        self.assertIn("--pipeline-model-parallel-layout 'Et*3|(t*4|)*6,t*5L' \\\n", text)
        self.assertIn("--recompute-granularity selective \\\n", text)
        self.assertNotIn("recompute-method", text)
        text = self.fails("export", "scenarios/gpt-2.2b-flush.yaml", "--to", "megatron-args",
                          "--set", f"recompute=[{', '.join(['full'] * 2 + ['none'] * 6)}]")
        self.assertIn("pipeline.recompute: Megatron-LM recomputes all stages alike; give one of "
                      "none, selective, full for all", text)
        ranks = ("export", "scenarios/gpt3-175b-1f1b.yaml", "--to", "megatron-args", "--set",
                 "width=2", "--set")
        self.assertIn("--use-tp-pp-dp-mapping \\\n", self.ok(*ranks, "rank_order=pipeline-first"))
        self.assertNotIn("mapping", self.ok(*ranks, "rank_order=data-first"))
        self.assertIn("--overlap-grad-reduce \\\n", self.ok(*ranks, "reduction.overlap=backward"))
        self.assertNotIn("overlap", self.ok(*ranks, "reduction.overlap=none"))
        self.assertEqual(
            self.ok("export", "scenarios/gpt-2.2b-flush.yaml", "--to", "megatron-args", "--set",
                    f"recompute=[{', '.join(['full'] * 8)}]"),
            self.ok("export", "scenarios/gpt-2.2b-flush.yaml", "--to", "megatron-args", "--set",
                    "recompute=full"))
        text = self.fails("export", "scenarios/small-gpipe.yaml", "--to", "megatron-args")
        self.assertIn("Megatron-LM runs 1f1b and interleaved-1f1b, not 'gpipe'", text)
        self.assertIn("a model given by its costs has no shape", text)

    def test_megatrons_recomputation_of_single_layers_goes_both_ways(self):
        def exported(*sets):
            return self.ok("export", "scenarios/gpt-2.2b-flush.yaml", "--to", "megatron-args",
                           *[word for s in sets for word in ("--set", s)])

        for method, layers in (("block", "2"), ("uniform", "3"), ("block", "1")):
            text = exported(f"recompute_method={method}", f"recompute_num_layers={layers}")
            self.assertIn("--recompute-granularity full \\\n", text)
            self.assertIn(f"--recompute-method {method} \\\n", text)
            self.assertIn(f"--recompute-num-layers {layers} \\\n", text)
            scenario = self.ok("import", "megatron-args", self.file(text, "run.sh"),
                               note="(?s:.*)")
            self.assertIn(f"recompute: full\n  recompute_method: {method}\n"
                          f"  recompute_layers: {layers}\n", scenario)
        # One number says it where stages with fewer layers recompute all of theirs.
        uneven = ("pipeline.split=[1,3,5,5,5,5,5,3]", "recompute_method=block")
        self.assertIn("--recompute-num-layers 4 \\\n",
                      exported(*uneven, "recompute_layers=[1,3,4,4,4,4,4,3]"))
        self.assertIn("one number of recompute_layers", self.fails(
            "export", "scenarios/gpt-2.2b-flush.yaml", "--to", "megatron-args", "--set",
            "recompute_method=block", "--set", "recompute_layers=[0,1,2,2,2,2,2,2]"))

    def test_recomputation_of_single_layers_takes_as_long_by_both_engines(self):
        def seconds(engine, recompute, *sets):
            text = self.ok("simulate", "scenarios/gpt-2.2b-flush.yaml", "--engine", engine, "--format",
                           "json", "--set", f"recompute={recompute}",
                           *[word for s in sets for word in ("--set", s)])
            return json.loads(text)["iteration_time_s"]

        for engine in ("exact", "simgrid"):
            none, full = seconds(engine, "none"), seconds(engine, "full")
            for layers in range(5):  # of 4 per stage
                some = seconds(engine, "full", "recompute_method=block", f"recompute_layers={layers}")
                self.assertAlmostEqual(some, none + layers / 4 * (full - none), delta=1e-3 * none)
        self.assertEqual(
            seconds("exact", "full", "recompute_method=block", "recompute_layers=2"),
            seconds("simgrid", "full", "recompute_method=block", "recompute_layers=2"))

    def test_a_csv_becomes_a_scenario_that_simulates(self):
        path = self.file("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
        self.assertEqual(self.ok("import", path),
                         f"# {path} with unit costs\nmodel: {{forward: 1 s, backward: 2 s}}\n"
                         f"cluster: {{link: {{latency: 0}}}}\nschedule: {path}\n"
                         "pipeline: {stages: 2, microbatches: 2}\n")
        scenario = self.file(self.ok("import", path), "imported.yaml")
        result = json.loads(self.ok("simulate", scenario, "--engine", "exact", "--format", "json",
                                    "--set", "schedule=1f1b"))
        checked = json.loads(self.ok("schedule", "check", path, "--format", "json"))
        self.assertEqual(result["makespan_s"], checked["makespan"])


class Graphs(Case):
    # Without replicas. Mirrored devices of Chimera and DualPipe reduce their gradients: over links that
    # take no time, as all messages do here.
    SCENARIOS = sorted(p.relative_to(SOURCE).as_posix()
                       for p in SOURCE.glob("scenarios/small-*.yaml")
                       if p.stem not in ("small-asp", "small-data-parallel"))

    # Their order looks at the time of messages: where messages take none, it is another.
    BY_TRANSFER_TIME = [f"scenarios/small-{s}.yaml" for s in ("v-search", "zb-v-search", "search",
                                                              "zb", "zb-1p", "zb-2p")]
    NO_TIME = ("--set", "cluster.link.latency=0", "--set", "cluster.link.bandwidth=1000000 GB/s")

    def chakra(self, scenario, *options):
        self.ok("export", scenario, "--to", "chakra", "-o", "t", *options, cwd=self.folder)
        files = sorted(self.folder.glob("t.*.et"), key=lambda p: int(p.name.split(".")[1]))
        self.assertEqual([p.name for p in files], [f"t.{i}.et" for i in range(len(files))])
        ranks = [activity_graphs.read_chakra_rank(p.read_bytes()) for p in files]
        for path in files:
            path.unlink()
        self.assertEqual({version for version, _ in ranks}, {"0.0.4"})
        return [nodes for _, nodes in ranks]

    def simulated(self, scenario, *options):
        return json.loads(self.ok("simulate", scenario, "--engine", "exact", "--format", "json",
                                  "--set", "transfers=free", *options))["makespan_s"]

    def test_their_longest_chain_is_the_makespan(self):
        for name in self.SCENARIOS:
            scenario = str(SOURCE / name)
            for transfers in ("overlapped", "coupled", "blocking"):
                with self.subTest(scenario=name, transfers=transfers):
                    set_ = ("--set", f"transfers={transfers}")
                    set_ += self.NO_TIME if name in self.BY_TRANSFER_TIME else ()
                    done = run("export", scenario, "--to", "goal", *set_)
                    if transfers == "coupled" and done.returncode == 2:
                        self.assertIn("coupled", done.stderr)
                        continue
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    goal = activity_graphs.read_goal(done.stdout)
                    chakra = activity_graphs.graph_of_chakra(self.chakra(scenario, *set_))
                    expected = self.simulated(scenario, *self.NO_TIME)
                    self.assertAlmostEqual(activity_graphs.makespan(goal), expected, places=6)
                    self.assertAlmostEqual(activity_graphs.makespan(chakra), expected, places=6)

    def test_uneven_stages_and_messages_of_a_real_model(self):
        scenario = str(SOURCE / "scenarios/gpt-2.2b-flush.yaml")
        goal = activity_graphs.read_goal(self.ok("export", scenario, "--to", "goal"))
        expected = self.simulated(scenario)
        ops = sum(len(rank) for rank in goal)
        self.assertLess(abs(activity_graphs.makespan(goal) - expected), ops * 0.5e-9)
        bytes_sent = {a[1] for rank in goal for a in rank.values() if a[0] == "send"}
        result = json.loads(self.ok("simulate", scenario, "--engine", "exact", "--format", "json",
                                    "--events"))
        messages = sum(1 for rank in goal for a in rank.values() if a[0] == "send")
        self.assertEqual(sum(link["bytes"] for link in result["links"]),
                         messages * bytes_sent.pop())
        self.assertEqual(bytes_sent, set())

    def test_partial_norms_are_messages_between_steps(self):
        path = self.folder / "norms.yaml"
        path.write_text(
            "model: {forward: [1 ms, 4 ms, 2 ms, 1 ms], backward_input: [1 ms, 2 ms, 1 ms, 3 ms],\n"
            "        backward_weight: [1 ms, 9 ms, 1 ms, 1 ms], step: [3 ms, 1 ms, 2 ms, 1 ms]}\n"
            "cluster: {devices: 8}\nbatches: 2\nschedule: zb-h1\n"
            "pipeline: {stages: 4, microbatches: 5, optimizer_sync: post-validation}\n")
        for options in ((), ("--set", "pipeline.width=2"), ("--set", "transfers=blocking"),
                        ("--set", "schedule=chimera", "--set", "microbatches=8")):
            with self.subTest(options):
                goal = activity_graphs.read_goal(self.ok("export", path, "--to", "goal", *options))
                chakra = activity_graphs.graph_of_chakra(self.chakra(path, *options))
                expected = self.simulated(path, *options)
                by_itself = self.simulated(path, *options, "--set", "optimizer_sync=device")
                self.assertLessEqual(by_itself, expected)
                self.assertAlmostEqual(activity_graphs.makespan(goal), expected, places=6)
                self.assertAlmostEqual(activity_graphs.makespan(chakra), expected, places=6)

    def test_replicas_reduce_their_gradients_together(self):
        scenario = str(SOURCE / "scenarios/small-1f1b.yaml")
        set_ = ("--set", "width=3", "--set", "cluster.devices=12")
        goal = activity_graphs.read_goal(self.ok("export", scenario, "--to", "goal", *set_))
        self.assertIsNotNone(activity_graphs.makespan(goal))
        nodes = self.chakra(scenario, *set_)
        collectives = [[n for n in rank if n["type"] == 7] for rank in nodes]
        groups = json.loads((self.folder / "t.groups.json").read_text())
        devices = len(nodes)
        self.assertEqual(sorted(map(tuple, groups.values())),
                         [(s, s + devices // 3, s + 2 * devices // 3) for s in range(devices // 3)])
        for rank, met in enumerate(collectives):
            self.assertTrue(met)
            for node in met:
                self.assertIn(rank, groups[node["attributes"]["pg_name"]])
        # a ring among three: four sends and four receives of each
        plain = activity_graphs.read_goal(self.ok("export", scenario, "--to", "goal"))
        per_rank = len(goal[0]) - len(plain[0])
        self.assertEqual(per_rank % 8, 0)
        self.assertGreater(per_rank, 0)
        self.assertAlmostEqual(activity_graphs.makespan(goal), activity_graphs.makespan(plain))
        self.assertAlmostEqual(activity_graphs.makespan(activity_graphs.graph_of_chakra(nodes)),
                               activity_graphs.makespan(plain))

    def test_a_small_goal_file(self):
        self.golden("goal-1f1b.txt", self.ok("export", "scenarios/small-1f1b.yaml", "--to", "goal",
                                             "--set", "stages=2", "--set", "microbatches=2"))

    def test_what_they_have_no_words_for(self):
        done = run("export", "scenarios/perturbed-jitter.yaml", "--to", "goal")
        self.assertEqual((done.returncode, done.stderr),
                         (0, "note: the perturbations of the scenario are left out\n"))
        self.assertIn("update the weights of servers",
                      self.fails("export", "scenarios/small-asp.yaml", "--to", "goal"))
        self.assertIn("name them with -o PREFIX",
                      self.fails("export", "scenarios/small-1f1b.yaml", "--to", "chakra"))
        self.assertIn("must be one of program, torch-csv, chakra",
                      self.fails("export", "scenarios/small-1f1b.yaml", "--to", "goall"))


if __name__ == "__main__":
    transcripts.main()
