#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`penstock plan --search full` as its users run it: plans that `simulate` accepts and confirms,
objectives, the table of planners, reasons."""
import csv
import json
import os
import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from command_case import CommandCase, of_penstock

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
SHARED = pathlib.Path(os.environ.get("PENSTOCK_SHARED", SOURCE / ".." / "shared"))
MODEL = ("{family: gpt, num_layers: 8, hidden_size: 1024, num_attention_heads: 8, vocab_size: 8000, "
         "seq_length: 512, precision: mixed-fp16}")
LAYERS = """layer,forward,backward,activation,parameters
conv,4 ms,8 ms,1 MB,1 KB
pool,1 ms,2 ms,1 MB,10 KB
fc1,2 ms,4 ms,1 KB,4 MB
fc2,1 ms,2 ms,1 KB,2 MB
fc3,2 ms,3 ms,1 KB,2 MB
"""
PROFILE = SOURCE / "tests/scenarios/profiles/tiny.yaml"
EFFORT = "50" if "PENSTOCK_SANITIZED" in os.environ or "PENSTOCK_THOROUGH" not in os.environ else "150"
PLANNERS = ["pipedream", "2bw", "dapple", "torchgpipe", "uniform", "full", "full, several versions"]


class Case(CommandCase):
    """Searches end by their effort, never by the clock: answers are those of every machine."""
    ENVIRONMENT = of_penstock(PENSTOCK_RUN=os.environ["PENSTOCK_RUN"])

    @classmethod
    def run_command(cls, *words, **options):
        if words[0] == "plan":
            words += ("--time-limit", "1e9") if "--time-limit" not in words else ()
            words += ("--effort", EFFORT) if "--effort" not in words else ()
        return super().run_command(*words, **options)

    def setUp(self):
        super().setUp()
        self.layers = self.folder / "layers.csv"
        self.layers.write_text(LAYERS)
        self.scenario = self.folder / "small.yaml"
        self.scenario.write_text(
            f"stack: none\nmodel: {MODEL}\ncluster: {{base: p3.16xlarge, nodes: 1}}\nschedule: 1f1b\n"
            "pipeline: {stages: 2, microbatches: 8}\n")

    def json(self, *words):
        return json.loads(self.ok(*words, "--format", "json"))

    def no_plan(self, *words):
        return self.refused("plan", *words)

    def bare_refused(self, *words):
        """Without the options that our own search alone has."""
        done = super().run_command("plan", *words)
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stderr


class Plans(Case):
    def test_simulate_accepts_every_plan_and_confirms_its_time(self):
        result = self.json("plan", self.scenario, "--search", "full", "--top", 4, "--write",
                           self.folder / "plans")
        self.assertGreaterEqual(len(result["plans"]), 3)
        for i, plan in enumerate(result["plans"]):
            with self.subTest(plan["schedule"]):
                file = self.folder / "plans" / f"plan-{i + 1}.yaml"
                self.assertEqual(file.read_text(), plan["scenario"])
                simulated = self.json("simulate", file, "--engine", "auto")
                self.assertTrue(simulated["feasible"])
                self.assertAlmostEqual(simulated["throughput_samples_per_s"] /
                                       plan["throughput_samples_per_s"], 1, 9)
                self.assertEqual(self.ok("export", file, "--to", "torch-csv"),
                                 file.with_suffix(".csv").read_text())
                self.assertTrue(plan["limited_by"])
                self.assertEqual(plan["stages"][0]["first_layer"], 0)
                self.assertEqual(plan["stages"][-1]["last_layer"], 7)
        times = [plan["throughput_samples_per_s"] for plan in result["plans"]]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertGreaterEqual(result["gap"], 0)

    def test_plans_of_megatrons_schedules_say_its_arguments(self):
        result = self.json("plan", self.scenario, "--search", "full", "--stages", 2, "--schedule", "1f1b",
                           "--schedule", "interleaved-1f1b")
        for plan in result["plans"]:
            self.assertIn(plan["schedule"], ("1f1b", "interleaved-1f1b"))
            self.assertIn("--pipeline-model-parallel-size 2", plan["megatron_arguments"])
        self.assertTrue(result["plans"])

    def test_each_objective_is_best_at_what_it_asks_for(self):
        plans = {}
        for objective in ("throughput", "memory", "price", "time"):
            result = self.json("plan", self.scenario, "--search", "full", "--objective", objective,
                               "--price", 2, "--tokens", 1e9)
            plans[objective] = result["plans"][0]
        fast = plans["throughput"]
        self.assertLessEqual(plans["memory"]["peak_memory_bytes"], fast["peak_memory_bytes"])
        self.assertLessEqual(plans["price"]["price_per_update"], fast["price_per_update"])
        self.assertAlmostEqual(plans["time"]["training_s"] / fast["training_s"], 1, 9)
        updates = 1e9 / 512 / 8
        self.assertAlmostEqual(fast["training_s"] / (updates * fast["iteration_time_s"]), 1, 9)
        self.assertAlmostEqual(fast["price_per_update"],
                               fast["iteration_time_s"] / 3600 * fast["gpus"] * 2, 12)

    def test_too_little_memory_is_a_result_with_its_reason(self):
        result = self.json("plan", self.layers, "--search", "full", "--level", "2x10GB/s",
                           "--memory", "1KB")
        self.assertEqual(result["plans"], [])
        self.assertTrue(result["infeasible_because"])
        text = self.ok("plan", self.layers, "--search", "full", "--level", "2x10GB/s", "--memory",
                       "1KB", "--write", self.folder / "none")
        self.assertIn("no plan: ", text)
        self.assertFalse((self.folder / "none").exists())

    def test_a_model_larger_than_all_memory_says_how_large(self):
        result = self.json("plan", "gpt3-175b", "--search", "full", "--cluster", "p3.16xlarge", "--batch", 64)
        self.assertRegex(result["infeasible_because"], r"optimizer state are .* TiB, all 8 GPUs have 1")

    def test_text_says_plan_limits_bound_and_scenario(self):
        text = self.ok("plan", self.layers, "--search", "full", "--level", "4x10GB/s")
        for words in ("samples/s", "is the busiest", "scenario of plan ", "recommended: plan "):
            self.assertIn(words, text)
        self.assertRegex(text, r"proven: no|can be more than [0-9.e+]+ % faster")

    def test_what_is_found_while_orders_are_looked_into_may_end_the_search(self):
        """With the software's overlapped reductions nothing was left to open behind such a find."""
        job = self.folder / "overlaps.yaml"
        job.write_text("model: llama-3-70b\ncluster: {base: dgx-h100, nodes: 8}\nstack: megatron\nschedule: 1f1b\n"
                       "pipeline: {stages: 8, tensor: 4, width: 2, global_batch_size: 1024, sequence_parallel: true, "
                       "distributed_optimizer: true}\n")
        self.assertTrue(self.json("plan", job, "--effort", 3000)["plans"])

    def test_statistics_are_said_on_request(self):
        search = "plan", self.layers, "--search", "full", "--level", "4x10GB/s"
        for words in ("proven worse", "cuts simulated as a bound"):
            self.assertNotIn(words, self.ok(*search))
            self.assertIn(words, self.ok(*search, "--statistics"))

    def test_the_report_is_a_page_with_plans_and_planners(self):
        page = self.folder / "plan.html"
        self.ok("plan", self.layers, "--level", "4x10GB/s", "--compare", "--price", 2, "--report",
                page)
        text = page.read_text()
        for words in ("What to run?", "How much memory?", "What does it take?", "an update costs",
                      "What limits each", "Planners, simulated alike", "torchgpipe",
                      "Speed against memory", "Timeline of plan 1", "not searched"):
            self.assertIn(words, text)

    def test_the_report_of_a_transformer_says_how_to_run_it(self):
        page = self.folder / "plan.html"
        self.ok(*self.small_cluster("2 GiB"), "--top", 4, "--report", page)
        text = page.read_text()
        self.assertIn("MFU", text[text.index('class="figures"'):text.index("</dl>")])
        sections = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
        plans = next(s for s in sections if s["heading"] == "Plans")
        self.assertIn("MFU", [c["name"] for c in plans["columns"]])
        timelines = [s for s in sections if s["kind"] == "timeline"]
        owners, = (s for s in sections if s["kind"] == "owners")
        self.assertEqual((plans["rows"], [line["name"] for line in owners["lines"]]),
                         (len(timelines), [f"plan {i + 1}" for i in range(len(timelines))]))
        self.assertGreater(owners["lines"][0]["owners"][0], 0)
        run, = (s for s in sections if s["kind"] == "text")
        self.assertRegex(run["text"], r"penstock plan .*--write FOLDER")
        self.assertIn("--pipeline-model-parallel-size 4", run["text"])

    def test_csv_has_a_row_per_plan(self):
        lines = list(csv.reader(self.ok("plan", self.layers, "--search", "full", "--level", "4x10GB/s", "--top", 3,
                                        "--format", "csv").splitlines()))
        self.assertIn("throughput_samples_per_s", lines[0])
        self.assertEqual({len(line) for line in lines}, {len(lines[0])})

    def small_cluster(self, memory):
        return ("plan", MODEL, "--cluster", "{devices: 4, link: 10 GB/s, device: {name: d, peak: {fp16: 10 "
                f"TFLOP/s}}, memory_bandwidth: 300 GB/s, memory: {memory}}}}}", "--batch", 16,
                "--search", "full", "--schedule", "1f1b", "--stages", 4, "--microbatch-size", 1, "--stack", "none")

    def test_stages_recompute_each_as_they_must(self):
        """The first one stashes most; all alike is slower."""
        search = self.small_cluster("737 MiB")
        best = self.json(*search)["plans"][0]
        self.assertEqual(best["recompute"], ["full", "none", "none", "none"])
        self.assertIn("full 1, none 3", self.ok(*search))
        row = next(csv.DictReader(self.ok(*search, "--format", "csv").splitlines()))
        self.assertEqual(json.loads(row["recompute"]), best["recompute"])
        alike = self.json(*search, "--recompute", "full")["plans"][0]
        self.assertEqual(alike["recompute"], "full")
        self.assertLess(alike["throughput_samples_per_s"], best["throughput_samples_per_s"])

    def test_what_would_help_is_of_what_was_asked_for(self):
        """A layer a stage, and an LM head as long as several: only a stage of the head alone is faster."""
        model = MODEL.replace("8000", "80000")
        asked = ("plan", model, "--cluster", "{base: p3.16xlarge, nodes: 1}", "--batch", 64, "--schedule", "1f1b",
                 "--stages", 8, "--microbatch-size", 4, "--recompute", "none", "--stack", "none", "--write",
                 self.folder / "plans")
        result = self.json(*asked)
        helps = result["plans"][0]["would_help"]
        self.assertEqual(len(helps), 1)
        self.assertRegex(helps[0], "^split: balanced: update time -")
        self.assertTrue(any("stages without layers" in what for what in result["not_searched"]))
        self.assertIn("schedule: v-half", self.ok("simulate", self.folder / "plans/plan-1.yaml"))

    def test_single_layers_are_recomputed_where_that_is_enough(self):
        search = self.small_cluster("737 MiB")
        flash = search[1].replace("precision:", "flash_attention: true, precision:")
        search = (search[0], flash, *search[2:])
        found = self.json(*search)
        for plan in found["plans"]:
            layers = plan["recompute_layers"]
            self.assertEqual(plan["recompute_method"], None if layers is None else "block")
            if layers is None:
                continue
            self.assertEqual(plan["recompute"], "full")
            self.assertIn(f"recompute_layers: {layers}", plan["scenario"])
        self.assertTrue(any(plan["recompute_layers"] for plan in found["plans"]), found["plans"])
        self.assertNotIn("recomputation of single layers", found["not_searched"])

    def test_all_stages_recompute_alike_where_that_is_asked(self):
        search = self.small_cluster("737 MiB")
        mixed = self.json(*search)["plans"][0]
        alike = self.json(*search, "--uniform-recompute")["plans"][0]
        full = self.json(*search, "--recompute", "full")["plans"][0]
        self.assertIsInstance(alike["recompute"], str)
        self.assertLess(alike["throughput_samples_per_s"], mixed["throughput_samples_per_s"])
        self.assertGreaterEqual(alike["throughput_samples_per_s"], full["throughput_samples_per_s"])

    def test_memory_is_left_free(self):
        search = self.small_cluster("737 MiB")
        for words, share in (((), 0.05), (("--headroom", "10%"), 0.1), (("--headroom", "0%"), 0)):
            with self.subTest(share):
                result = self.json(*search, *words)
                self.assertAlmostEqual(result["headroom"], share)
                self.assertLessEqual(result["plans"][0]["peak_memory_bytes"],
                                     (1 - share) * 737 * 2**20)
        self.assertIn("10 % of memory left free", self.ok(*search, "--headroom", "10%"))
        self.assertIn("a share below 100%", self.no_plan(*search[1:], "--headroom", "100%"))

    def test_what_headroom_costs_is_said_and_no_more_than_it_does(self):
        search = self.small_cluster("737 MiB")
        for words in (), ("--uniform-recompute",), ("--objective", "price"):
            with self.subTest(words):
                result = self.json(*search, *words)
                without, best = result["without_headroom"], result["plans"][0]
                self.assertTrue(without["fits"])
                self.assertGreater(without["saved"], 0)
                self.assertAlmostEqual(without["saved"],
                                       1 - without["iteration_time_s"] / best["iteration_time_s"], 9)
                self.assertGreater(without["peak_memory_bytes"], 0.95 * 737 * 2**20)
                file = self.folder / "without.yaml"
                file.write_text(without["scenario"])
                simulated = self.json("simulate", file, "--engine", "auto")
                self.assertTrue(simulated["feasible"])
                self.assertAlmostEqual(simulated["throughput_samples_per_s"] /
                                       without["throughput_samples_per_s"], 1, 9)
                all_memory = self.json(*search, *words, "--headroom", "0%")
                self.assertLessEqual(all_memory["lower_bound"],
                                     without["iteration_time_s"] * best["gpus"])
        page = self.folder / "plan.html"
        text = self.ok(*search, "--report", page)
        self.assertRegex(text, r"headroom: with all memory used \(--headroom 0%\) an update would "
                               r"take at most [0-9.]+ ms, [0-9.]+ % less \(tried: ")
        self.assertIn("What does headroom cost?", page.read_text())
        self.assertRegex(self.ok(*search, "--objective", "price"), "of GPU time, [0-9.]+ % less")

    def test_a_plan_that_fits_without_headroom_alone_is_said(self):
        search = self.small_cluster("650 MiB")
        page = self.folder / "plan.html"
        for words in (), ("--uniform-recompute",):
            with self.subTest(words):
                command = *search, *words
                self.assertIn("headroom: no plan fits with 5 % of memory left free; with all memory "
                              "used (--headroom 0%) one fits, of ", self.ok(*command, "--report", page))
                self.assertIn("one fits, of ", page.read_text())
                result = self.json(*command)
                self.assertEqual(result["plans"], [])
                self.assertTrue(result["without_headroom"]["fits"])
                self.assertIsNone(result["without_headroom"]["saved"])
        self.assertIn("headroom: with all memory used (--headroom 0%) no plan fits, either",
                      self.ok(*self.small_cluster("100 MiB")))
        self.assertIs(self.json(*self.small_cluster("100 MiB"))["without_headroom"]["fits"], False)

    def test_headroom_that_costs_nothing_is_said_so(self):
        search = self.small_cluster("8 GiB")
        self.assertIn("(--headroom 0%) nothing faster was found (tried: ", self.ok(*search))
        self.assertEqual(self.json(*search)["without_headroom"]["saved"], 0)

    def test_nothing_is_said_where_headroom_makes_no_difference(self):
        search = self.small_cluster("737 MiB")
        unknown = "plan", self.layers, "--search", "full", "--level", "4x10GB/s"
        for command in ((*search, "--headroom", "0%"), (*search, "--objective", "memory"), unknown):
            with self.subTest(command):
                self.assertIsNone(self.json(*command)["without_headroom"])
                self.assertNotIn("headroom: ", self.ok(*command))

    def test_plans_say_what_they_are_best_at(self):
        search = self.small_cluster("4 GiB")
        result = self.json(*search[:search.index("--schedule")])
        strengths = [word for plan in result["plans"] for word in plan["best_at"]]
        self.assertEqual(sorted(strengths), ["memory", "simplicity", "speed"])
        self.assertIn("speed", result["plans"][0]["best_at"])
        smallest = min(result["plans"], key=lambda plan: plan["peak_memory_bytes"])
        self.assertIn("memory", smallest["best_at"])

    def test_of_different_gpus_it_says_which_stages_lie_on_which(self):
        mixed = ("{inter: 100 Gbps, groups: [{base: dgx-a100, nodes: 1}, "
                 "{base: p3.16xlarge, nodes: 1}]}")
        words = ("plan", MODEL, "--cluster", mixed, "--batch", 16, "--search", "full", "--stages", 4,
                 "--schedule", "1f1b", "--top", 1)
        plan = self.json(*words)["plans"][0]
        self.assertTrue(plan["placed"])
        for line in plan["placed"]:
            self.assertRegex(line, r"^stages? [0-9- ]+ on (A100|V100)\S*( and \S+)?: GPUs [0-9- ]+$")
            self.assertIn(line, self.ok(*words))
        self.assertEqual(self.json(*self.small_cluster("4 GiB"))["plans"][0]["placed"], [])

    def test_sequence_parallelism_and_zero_are_given_with_a_model(self):
        search = self.small_cluster("4 GiB")
        search = search[:search.index("--stages")]
        plan = self.json(*search, "--stages", 1, "--sequence-parallel",
                         "--distributed-optimizer")["plans"][0]
        self.assertIn("distributed_optimizer: true", plan["scenario"])
        self.assertIn("pipeline.sequence_parallel=true",
                      self.no_plan(self.scenario, "--search", "full", "--sequence-parallel"))


class Files(Case):
    """What --write leaves in its folder."""

    def setUp(self):
        super().setUp()
        self.plans = self.folder / "plans"
        self.small = self.folder / "smallest.yaml"
        self.small.write_text(
            "stack: none\nmodel: {family: gpt, num_layers: 6, hidden_size: 64, num_attention_heads: 4, "
            "vocab_size: 256, seq_length: 32, precision: fp32}\n"
            "cluster: {devices: 2, link: 10 GB/s, device: v100-16}\n"
            "schedule: 1f1b\npipeline: {stages: 2, microbatches: 4}\n")

    def write(self, *words):
        return self.json("plan", self.small, "--search", "full", "--write", self.plans, *words)["plans"]

    def names(self):
        return sorted(path.name for path in self.plans.iterdir())

    def check_forms(self, plans):
        """Returns the endings that there are."""
        found = set()
        for i, plan in enumerate(plans):
            scenario = self.plans / f"plan-{i + 1}.yaml"
            self.assertEqual(plan["files"][0], str(scenario))
            for ending, form in (("csv", "torch-csv"), ("megatron.txt", "megatron-args")):
                file = self.plans / f"plan-{i + 1}.{ending}"
                self.assertEqual(str(file) in plan["files"], file.exists())
                if file.exists():
                    found.add(ending)
                    self.assertEqual(file.read_text(), self.ok("export", scenario, "--to", form))
        listed = sorted(pathlib.Path(name).name for plan in plans for name in plan["files"])
        self.assertEqual(self.names(), listed)
        return found

    def test_each_is_what_export_gives(self):
        for schedule, forms in (("1f1b", {"csv", "megatron.txt"}), ("interleaved-zb", {"csv"})):
            with self.subTest(schedule):
                plans = self.write("--schedule", schedule, "--stages", 2, "--top", 2, "--force")
                self.assertEqual(self.check_forms(plans), forms)

    def test_what_megatron_does_not_run_is_not_written_for_it(self):
        """And the fastest plan that it runs is named, where there is one."""
        words = ("--schedule", "1f1b", "--schedule", "zb-h1", "--stages", 2, "--top", 2)
        found = self.write(*words)
        plans = {p["schedule"]: p for p in found}
        mine = found.index(plans["1f1b"]) + 1
        self.assertEqual({s: plans[s]["megatron_plan"] for s in plans}, {"1f1b": None, "zb-h1": mine})
        self.assertFalse(any("megatron" in f or "layout" in f for f in plans["zb-h1"]["files"]))
        said = ("plan", self.small, "--search", "full", "--write", self.plans, "--force")
        self.assertIn(f"no files for Megatron-LM, which does not run it; it runs plan {mine}\n", self.ok(*said, *words))
        self.assertIn("which does not run it; nor any other of these plans\n",
                      self.ok(*said, "--schedule", "zb-h1", "--stages", 2))

    def test_text_names_them_and_says_why_one_is_missing(self):
        text = self.ok("plan", self.small, "--search", "full", "--write", self.plans)
        for name in self.names():
            self.assertIn(name, text)
        self.assertIn("not in Megatron-LM: Megatron-LM runs 1f1b", text)

    def test_each_says_which_frameworks_have_its_schedule(self):
        wanted = ("--schedule", "1f1b", "--schedule", "zb-h1", "--stages", 2, "--top", 2)
        text = self.ok("plan", self.small, "--search", "full", *wanted)
        self.assertIn("  runs in: Megatron-LM, PyTorch (Schedule1F1B)\n", text)
        self.assertIn("  runs in: PyTorch (from its table, --write); not in Megatron-LM: "
                      "Megatron-LM runs 1f1b and interleaved-1f1b, not 'zb-h1'\n", text)
        self.assertIn("\nfor Megatron-LM: --schedule 1f1b --schedule interleaved-1f1b", text)
        plans = json.loads(self.ok("plan", self.small, "--search", "full", *wanted, "--format",
                                   "json"))["plans"]
        by_schedule = {p["schedule"]: p for p in plans}
        self.assertIn("Megatron-LM", by_schedule["1f1b"]["runs_in"])
        self.assertIsNone(by_schedule["1f1b"]["not_in_megatron"])
        self.assertNotIn("Megatron-LM", by_schedule["zb-h1"]["runs_in"])
        self.assertIn("not 'zb-h1'", by_schedule["zb-h1"]["not_in_megatron"])

    def test_plans_are_replaced_when_told_so_and_all_of_them(self):
        self.write("--top", 3)
        before = {name: (self.plans / name).read_text() for name in self.names()}
        error = self.no_plan(self.small, "--write", self.plans, "--price", -1)
        for said in ("plan-1.yaml", "--force", "--price"):
            self.assertIn(said, error)
        self.assertEqual(before, {name: (self.plans / name).read_text() for name in self.names()})
        (self.plans / "mine.yaml").write_text("")
        self.write("--top", 1, "--force")
        self.assertEqual({name.split(".")[0] for name in self.names()}, {"plan-1", "mine"})

    def test_a_plan_whose_files_cannot_all_be_written_leaves_none(self):
        (self.plans / "plan-1.csv").mkdir(parents=True)
        done = self.run_command("plan", self.small, "--write", self.plans, "--force")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("plan-1.csv", done.stderr)
        self.assertEqual(self.names(), ["plan-1.csv"])

    def test_a_file_is_no_folder(self):
        self.assertIn("is a file", self.no_plan(self.small, "--write", self.small))

    def test_every_scenario_is_replayed_as_it_was_simulated(self):
        plans = self.write("--top", 3, "--asynchronous")
        self.assertGreaterEqual(len(plans), 2)
        for i, plan in enumerate(plans):
            with self.subTest(plan["schedule"]):
                file = self.plans / f"plan-{i + 1}.yaml"
                simulated = self.json("simulate", file, "--engine", "auto")
                self.assertAlmostEqual(simulated["throughput_samples_per_s"] /
                                       plan["throughput_samples_per_s"], 1, 9)
                replayed = self.json("replay", file, "--backend", "host", "--clock", "virtual")
                self.assertEqual(replayed["throughput_samples_per_s"],
                                 simulated["throughput_samples_per_s"])


def ring(devices, device="{name: d, peak: {fp16: 10 TFLOP/s}, memory_bandwidth: 300 GB/s, memory: 8 GiB}"):
    return f"{{devices: {devices}, link: 10 GB/s, device: {device}}}"


class Batches(Case):
    """Every plan makes updates of the samples that were asked, in the time that is said."""

    def check(self, batch, *words):
        folder = self.folder / "plans"
        result = self.json("plan", *words, "--batch", batch, "--top", 30, "--write", folder, "--force")
        self.assertTrue(result["plans"])
        self.assertEqual(result["batch"], batch)
        for i, plan in enumerate(result["plans"]):
            with self.subTest(batch=batch, schedule=plan["schedule"], planner=plan["began_with"]):
                simulated = self.json("simulate", folder / f"plan-{i + 1}.yaml", "--engine", "auto")
                self.assertAlmostEqual(simulated["iteration_time_s"] / plan["iteration_time_s"], 1, 9)
                samples = simulated["throughput_samples_per_s"] * simulated["iteration_time_s"]
                self.assertAlmostEqual(samples, batch, 6)
                self.assertAlmostEqual(plan["samples_per_update"], batch, 6)
        return {plan["began_with"] for plan in result["plans"]}

    def test_of_published_planners_that_take_turns_or_update_once_per_minibatch(self):
        planners = set()
        for batch in (97, 100, 24):
            for versions in ((), ("--asynchronous",)):
                planners |= self.check(batch, self.layers, "--search", "full", "--level", "2x10GB/s",
                                       "--level", "3x1GB/s", *versions)
        self.assertGreaterEqual(len(planners), 4, planners)

    def test_of_a_transformer(self):
        for batch in (96, 100):
            self.check(batch, self.scenario, "--search", "full", "--asynchronous")

    def test_a_batch_that_is_plainly_in_tokens_is_asked_about(self):
        search = "llama-3-8b", "--gpus", "16xH100"
        error = self.no_plan(*search, "--batch", 4194304)
        for said in ("is the batch in tokens?", "--batch 512 (4194304 tokens)", "'4194304 samples'"):
            self.assertIn(said, error)
        self.assertIn("'4194304 tokens', '4000000 tokens' or '4000000 samples'",
                      self.no_plan(*search, "--batch", "4M"))
        for tokens in "4194304 tokens", "4M tokens", "4194304tokens":
            result = self.json("plan", *search, "--batch", tokens, "--stages", 2)
            self.assertEqual((result["batch"], result["tokens_per_update"]), (512, 4194304))
        for tokens in "256K tokens", "0.25M tokens", "262,144 tokens":
            self.assertEqual(self.json("plan", *search, "--batch", tokens, "--stages", 2)["batch"], 32)
        self.assertIn("is the batch in tokens?", self.no_plan(*search, "--batch", 65536), "8 samples of 8192 tokens")
        self.assertIn("the nearest that are: 8192 and 16384", self.no_plan(*search, "--batch", "10000 tokens"))
        scenario = self.folder / "tokens.yaml"
        scenario.write_text("model: llama-3-8b\ncluster: dgx-h100\nschedule: 1f1b\n"
                            "pipeline: {stages: 8, global_batch_size: 4194304}\n")
        self.assertIn("is the batch in tokens?", self.no_plan(scenario))

    def test_updates_too_long_to_simulate_in_the_time_are_said(self):
        for words in (("llama-3-8b", "--cluster", "dgx-h100", "--batch", "1000000000 samples"),
                      (self.layers, "--search", "full", "--level", "4x10GB/s", "--batch", 1000000000)):
            result = self.json("plan", *words, "--time-limit", 2)
            said = " ".join(result["not_searched"])
            self.assertIn("microbatches so small that an update has more than 400,000 ops", said)


class Given(Case):
    """The job as given is row 0, and what it says is kept or refused."""
    LONG = (f"model: {MODEL.replace('512,', '65536, flash_attention: true,')}\n"
            f"cluster: {ring(8)}\nschedule: 1f1b\n")

    def scenario_of(self, text):
        file = self.folder / "given.yaml"
        file.write_text(text)
        return file

    def test_it_is_simulated_like_the_plans(self):
        result = self.json("plan", self.scenario)
        simulated = self.json("simulate", self.scenario, "--engine", "auto")
        for key in ("iteration_time_s", "throughput_samples_per_s", "tokens_per_s_per_device", "mfu"):
            self.assertAlmostEqual(result["given"][key] / simulated[key], 1, 9, key)
        self.assertEqual(result["given"]["why_not"], "")
        self.assertRegex(self.ok("plan", self.scenario), r"(?m)^ +0 +1f1b +2 .* as given ")
        self.assertIsNone(self.json("plan", self.layers, "--search", "full", "--level", "2x1GB/s")["given"])

    def test_it_is_shown_where_no_plan_is_found(self):
        job = self.scenario_of(self.LONG + "pipeline: {stages: 2, context: 4, global_batch_size: 8}\n")
        self.assertRegex(self.ok("plan", job, "--time-limit", "1e-9"),
                         r"(?m)^no plan was confirmed(.*\n)+ +0 +1f1b +2 .* as given ")

    def test_it_is_recommended_where_nothing_is_better_than_the_models_error(self):
        plan = self.json("plan", self.scenario)["plans"][0]
        best = self.scenario_of(plan["scenario"])
        result = self.json("plan", best)
        self.assertEqual(result["recommended"], 0)
        self.assertIn("recommended: the job as given", self.ok("plan", best))

    def test_context_is_kept(self):
        job = self.scenario_of(self.LONG + "pipeline: {stages: 2, context: 4, global_batch_size: 8}\n")
        result = self.json("plan", job)
        self.assertEqual({plan["context"] for plan in result["plans"]}, {4})
        for plan in result["plans"]:
            self.assertIn("context: 4", plan["scenario"])
        best = self.scenario_of(result["plans"][0]["scenario"])
        simulated = self.json("simulate", best, "--engine", "auto")
        self.assertAlmostEqual(simulated["iteration_time_s"] / result["plans"][0]["iteration_time_s"], 1, 9)
        self.assertLessEqual(result["plans"][0]["iteration_time_s"],
                             result["given"]["iteration_time_s"] * (1 + 1e-9))

    def test_degrees_of_context_are_searched_for_long_sequences(self):
        job = self.scenario_of(self.LONG + "pipeline: {stages: 2, global_batch_size: 2}\n")
        plans = self.json("plan", job, "--top", 20)["plans"]
        self.assertGreater(len({plan["context"] for plan in plans}), 1, plans)

    def test_a_scenario_whose_default_stages_do_not_divide_its_layers_is_planned(self):
        job = self.scenario_of(f"model: {MODEL}\ncluster: {ring(6)}\nschedule: 1f1b\n"
                               "pipeline: {global_batch_size: 12}\n")
        self.refused("simulate", job)
        result = self.json("plan", job)
        self.assertTrue(result["plans"])
        self.assertEqual(result["batch"], 12)
        self.assertIn("8", result["given"]["why_not"])
        self.assertIn("the job as given does not run: ", self.ok("plan", job))
        published = CommandCase.run_command.__func__(Case, "plan", job, "--search", "uniform", "--stages", 2)
        self.assertEqual(published.returncode, 0, published.stderr)

    def test_what_is_wrong_beside_the_shape_is_an_error(self):
        job = self.scenario_of(f"model: {MODEL}\ncluster: {ring(6)}\nschedule: 1f1b\n"
                               "pipeline: {global_batch_size: 12, tenser: 2}\n")
        self.assertIn("did you mean 'tensor'", self.no_plan(job))

    def test_perturbations_are_refused_by_every_planner(self):
        job = self.scenario_of(self.scenario.read_text() + "perturbations: {slow_devices: [{device: 0, factor: 2}]}\n")
        for search in (), ("--search", "full"), ("--search", "uniform"):
            self.assertIn("perturbations={}", self.bare_refused(job, *search))
        self.assertTrue(self.json("plan", job, "--set", "perturbations={}")["plans"])

    def test_what_belongs_to_its_schedule_alone_is_said(self):
        job = self.scenario_of(self.scenario.read_text().replace("microbatches: 8", "microbatches: 8, accumulation_steps: 2"))
        self.assertIn("pipeline.accumulation_steps: 2, which only the job as given has",
                      self.json("plan", job)["not_searched"])

    def test_the_header_says_model_devices_software_and_tokens(self):
        job = self.scenario_of("model: llama-3-8b\ncluster: {base: dgx-h100, device: H200}\nstack: megatron\n"
                               "schedule: 1f1b\npipeline: {stages: 4, width: 2, global_batch_size: 16}\n")
        first = self.ok("plan", job, "--stages", 4).splitlines()[0]
        for said in ("Llama-3-8B on 8 GPUs of dgx-h100 (H200): 16 samples of 8192 tokens per update (131,072 tokens)",
                     "software: megatron"):
            self.assertIn(said, first)
        result = self.json("plan", job, "--stages", 4)
        self.assertEqual((result["device"], result["software"]), ("H200", "megatron"))


class Devices(Case):
    def test_gpus_are_a_shipped_cluster_of_that_device(self):
        words = "plan", "gpt-1.3b", "--batch", 64, "--stages", 4
        for gpus, cluster in (("16xA100-80", "{base: dgx-a100, nodes: 2}"),
                              ("4xh100", "{base: dgx-h100, nodes: 1, devices_per_node: 4, inter: {nics: 4}}")):
            mine, named = self.json(*words, "--gpus", gpus), self.json(*words, "--cluster", cluster)
            self.assertEqual(mine["plans"], named["plans"])

    def test_gpus_that_make_no_nodes_or_are_unknown_are_said(self):
        for gpus, said in (("12xH100", "8 or 16, not 12"), ("8xH10", "did you mean 'H100'"), ("H100", "NxDEVICE"),
                           ("0xH100", "NxDEVICE"), ("8x", "NxDEVICE")):
            self.assertIn(said, self.no_plan("gpt-1.3b", "--gpus", gpus))
        self.assertIn("give one", self.no_plan("gpt-1.3b", "--gpus", "8xH100", "--cluster", "dgx-h100"))

    def test_stack_and_length_are_those_of_the_options(self):
        words = "plan", "gpt-1.3b", "--gpus", "8xH100", "--batch", 16, "--stages", 2
        result = self.json(*words, "--stack", "megatron", "--seq-length", 1024)
        self.assertEqual((result["software"], result["tokens_per_update"]), ("megatron", 16 * 1024))
        self.assertIn("stack: megatron", result["plans"][0]["scenario"])
        changed = self.json("plan", self.scenario, "--stack", "megatron", "--seq-length", 256)
        self.assertEqual((changed["software"], changed["tokens_per_update"]), ("megatron", 8 * 256))
        self.assertIn("models by shape", self.no_plan(self.layers, "--search", "full", "--level", "2x1GB/s",
                                                      "--stack", "megatron"))


class Rows(Case):
    def test_rates_and_cost_are_in_the_units_that_people_use(self):
        words = "plan", self.scenario, "--price", 2
        plan = self.json(*words)["plans"][0]
        tokens = plan["throughput_samples_per_s"] * 512
        self.assertAlmostEqual(plan["tokens_per_s"] / tokens, 1, 9)
        self.assertAlmostEqual(plan["tokens_per_s_per_device"] * plan["gpus"] / tokens, 1, 9)
        self.assertEqual(plan["tokens_per_s_per_gpu"], plan["tokens_per_s_per_device"])
        self.assertAlmostEqual(plan["price_per_1e9_tokens"] /
                               (1e9 / tokens / 3600 * plan["gpus"] * 2), 1, 9)
        text = self.ok(*words)
        for word in ("tokens/s/GPU", "MFU", "cost/1e9 tokens"):
            self.assertIn(word, text)
        self.assertNotIn("cost/", self.ok(*words[:2]))

    def test_each_idea_has_one_row_and_those_as_good_as_the_best_are_marked(self):
        result = self.json("plan", self.scenario, "--top", 30)
        plans = result["plans"]
        best = plans[0]["iteration_time_s"]
        for plan in plans:
            self.assertEqual(plan["as_good_as_best"],
                             plan["iteration_time_s"] <= best * (1 + result["model_error"]))
        plain = [(p["depth"], p["tensor"]) for p in plans
                 if p["schedule"] in ("1f1b", "gpipe", "eager-1f1b") and not {"memory", "simplicity"} & set(p["best_at"])]
        self.assertEqual(len(plain), len(set(plain)), plain)
        number = result["recommended"]
        if number:
            self.assertTrue(plans[number - 1]["as_good_as_best"])
            self.assertIn(f"recommended: plan {number}", self.ok("plan", self.scenario, "--top", 30))

    def test_overlap_of_the_reduction_is_among_the_choices(self):
        job = self.folder / "reduces.yaml"
        job.write_text(f"model: {MODEL.replace('num_attention_heads: 8', 'num_attention_heads: 1')}\n"
                       f"cluster: {ring(4)}\nstack: {{name: none}}\nschedule: 1f1b\n"
                       "pipeline: {stages: 2, width: 2, global_batch_size: 8}\n")
        words = "plan", job, "--schedule", "1f1b", "--stages", 2
        best = self.json(*words)["plans"][0]
        self.assertIn("reduction: {overlap: backward}", best["scenario"])
        after = self.json(*words, "--set", "reduction.overlap=none")["plans"][0]
        self.assertLess(best["iteration_time_s"], after["iteration_time_s"])
        chunked = self.json("plan", job, "--schedule", "interleaved-1f1b", "--stages", 2)
        self.assertTrue(any("gradient reduction beside the backward" in what for what in chunked["not_searched"]),
                        chunked["not_searched"])


class Calibrations(Case):
    """tiny.yaml: two devices, microbatches of 2 to 4, nothing recomputed."""

    def check(self, *words):
        result = self.json("plan", *words, "--search", "full", "--batch", 16, "--top", 3, "--write",
                           self.folder / "plans")
        self.assertTrue(result["plans"])
        for i, plan in enumerate(result["plans"]):
            self.assertIn(plan["microbatch_size"], (2, 4))
            self.assertIn(plan["recompute"], ("none", "never"))
            self.assertEqual(plan["tensor"], 1)
            simulated = self.json("simulate", self.folder / "plans" / f"plan-{i + 1}.yaml",
                                  "--engine", "auto")
            self.assertAlmostEqual(simulated["throughput_samples_per_s"] /
                                   plan["throughput_samples_per_s"], 1, 9)

    def test_a_profile_by_itself(self):
        self.check(PROFILE)

    def test_a_scenario_with_one(self):
        scenario = self.folder / "measured.yaml"
        scenario.write_text(f"model: {PROFILE}\ncluster: {PROFILE}\nschedule: gpipe\n"
                            "pipeline: {stages: 2, microbatches: 4, microbatch_size: 2}\n")
        self.check(scenario)

    def test_planners_are_compared_on_it(self):
        rows = self.json("plan", PROFILE, "--compare", "--batch", 16)["planners"]
        self.assertTrue(all(row["throughput_samples_per_s"] for row in rows
                            if row["planner"] in ("pipedream", "uniform", "full")), rows)


class Joined(Case):
    def test_layers_that_were_joined_are_said(self):
        many = self.folder / "many.csv"
        many.write_text("layer,time,activation,parameters\n" +
                        "".join(f"l{i},{1 + i % 7} ms,1 MB,1 MB\n" for i in range(70)))
        words = ("plan", many, "--search", "full", "--level", "2x10GB/s", "--schedule", "gpipe",
                 "--batch", 4)
        self.assertIn("70 layers were joined to 64", self.ok(*words))
        for layers, counts in ((many, (70, 64)), (self.layers, (5, 5))):
            result = self.json("plan", layers, *words[2:])
            self.assertEqual((result["layers"], result["searched_layers"]), counts)
        self.assertNotIn("joined", self.ok("plan", self.layers, *words[2:]))


class Words(Case):
    def test_names_of_files_may_have_letters_that_yaml_reads(self):
        folder = self.folder / "a, b: {c} #d"
        folder.mkdir()
        layers = folder / "it's \"mine\", [1].csv"
        layers.write_text(LAYERS)
        cluster = folder / "two: 2.yaml"
        cluster.write_text("{devices: 2, link: 10 GB/s}\n")
        for devices in (("--level", "2x10GB/s"), ("--cluster", cluster)):
            result = self.json("plan", layers, "--search", "full", *devices)
            self.assertEqual((result["devices"], bool(result["plans"])), (2, True))

    def test_a_cluster_may_be_a_map_also_of_a_profile(self):
        nodes = "{base: p3.16xlarge, nodes: 2, memory: 1 GB, name: " + "long" * 80 + "}"
        for memory, said in ((), "1 GB"), (("--memory", "2GB"), "2000000000 B"):
            result = self.json("plan", self.layers, "--search", "full", "--cluster", nodes, *memory)
            self.assertEqual(result["devices"], 16)
            first = self.folder / "first.yaml"
            first.write_text(result["plans"][0]["scenario"])
            self.assertIn(f"memory: {said}", first.read_text())
            self.assertTrue(self.json("simulate", first)["feasible"])

    def test_a_broken_map_is_an_error_of_its_option(self):
        self.assertIn("--cluster", self.no_plan(self.layers, "--search", "full", "--cluster",
                                               "{base: "))


class Refusals(Case):
    def test_what_only_published_planners_know_is_refused_all_at_once(self):
        error = self.no_plan(self.scenario, "--search", "full", "--no-transfers", "--balance",
                             "time", "--level", "2x1GB/s")
        for option in ("--no-transfers", "--balance", "--level"):
            self.assertIn(option, error)

    def test_a_folder_that_cannot_be_made_is_said(self):
        done = self.run_command("plan", self.layers, "--search", "full", "--level", "2x10GB/s",
                                "--write", self.layers / "plans")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot make the folder", done.stderr)

    def test_files_in_no_folder_are_said_before_the_search(self):
        plans = self.folder / "plans"
        error = self.no_plan(self.layers, "--search", "full", "--level", "2x10GB/s", "--write", plans,
                             "-o", self.folder / "none" / "x.json", "--report",
                             self.folder / "none" / "x.html")
        for option in ("--output: there is no folder", "--report: there is no folder"):
            self.assertIn(option, error)
        self.assertFalse(plans.exists())

    def test_all_that_a_model_lacks_is_said_at_once(self):
        error = self.no_plan("gpt-2.2b", "--search", "full", "--schedule", "1f1c", "--effort",
                             "x", "--tokens", 0, "--force", "--objective", "speed")
        for said in ("needs --cluster", "--objective: must be one of throughput", "--schedule", "--effort", "--tokens", "--force"):
            self.assertIn(said, error)

    def test_a_mistyped_planner_is_said_with_what_is_missing(self):
        error = self.no_plan("gpt-2.2b", "--search", "ful")
        for said in ("did you mean 'full'?", "needs --cluster"):
            self.assertIn(said, error)

    def test_a_mistyped_schedule_is_suggested_for(self):
        self.assertIn("did you mean '1f1b'?", self.no_plan(self.scenario, "--schedule", "1f1c"))

    def test_a_profile_without_devices_says_how_to_give_them(self):
        self.assertIn("--level 4x12GB/s", self.no_plan(self.layers, "--search", "full"))

    def test_more_than_two_levels_are_a_cluster(self):
        error = self.no_plan(self.layers, "--search", "full", "--level", "2x3GB/s", "--level",
                             "2x2GB/s", "--level", "2x1GB/s")
        self.assertIn("--cluster", error)

    def test_compared_are_throughputs_of_all_that_planners_choose(self):
        error = self.no_plan(self.layers, "--level", "2x3GB/s", "--compare", "--objective",
                             "memory", "--straight")
        self.assertIn("--objective", error)
        self.assertIn("--straight", error)


class Comparisons(Case):
    def compare(self, *words):
        rows = self.json("plan", *words, "--compare")["planners"]
        self.assertEqual([row["planner"] for row in rows], PLANNERS)
        for row in rows:
            with self.subTest(row["planner"]):
                if row["throughput_samples_per_s"] is None:
                    self.assertTrue(row["why_not"])
                elif not row["planner"].startswith("full"):
                    self.assertGreaterEqual(row["ours_is_faster_by"], -1e-9)
        own = {row["planner"]: row["throughput_samples_per_s"] for row in rows[-2:]}
        self.assertIsNotNone(own["full"])
        return rows

    def test_ours_is_best_or_equal_on_a_table_of_layers(self):
        rows = self.compare(self.layers, "--level", "2x10GB/s", "--level", "2x1GB/s")
        self.assertTrue(any((row["ours_is_faster_by"] or 0) > 0.01 for row in rows))

    def test_a_planner_that_does_not_choose_its_microbatch_gets_the_largest_that_fits(self):
        layers = self.folder / "large.csv"
        layers.write_text("layer,time,activation,stash\na,9 ms,1 MB,99 MB\nb,9 ms,1 MB,99 MB\n")
        words = (layers, "--level", "2x10GB/s", "--memory", "64MB", "--profile-batch", 8)
        plans = {row["planner"]: row for row in self.compare(*words)}
        self.assertIn(" of 4, torchgpipe", plans["torchgpipe"]["plan"])
        given = {row["planner"]: row for row in self.compare(*words, "--microbatch-size", 4)}
        self.assertEqual(given["torchgpipe"]["plan"], plans["torchgpipe"]["plan"])

    def test_ours_is_best_or_equal_for_a_transformer(self):
        self.compare(self.scenario)

    def test_what_published_planners_take_for_granted_is_said(self):
        mixed = self.folder / "mixed.yaml"
        mixed.write_text("{inter: 10 Gbps, groups: [{base: p3.16xlarge, nodes: 1}, "
                         "{base: dgx-a100, nodes: 1}]}\n")
        words = ("plan", self.layers, "--cluster", mixed, "--compare", "--effort", 20)
        said = self.json(*words)["planner_notes"]
        self.assertTrue(any(note.startswith("planned as if all devices were ") for note in said), said)
        self.assertIn(f"note: the published planners: {said[0]}", self.ok(*words))

    def test_ours_is_best_or_equal_on_measured_profiles(self):
        profiles = SHARED / "data" / "pipedream_profiles"
        if not profiles.is_dir():
            self.skipTest(f"no profiles in {profiles}")
        clusters = {"alexnet": ("4x5GB/s",), "vgg16": ("4x12GB/s", "4x1.25GB/s")}
        for model, levels in clusters.items():
            with self.subTest(model):
                words = [word for level in levels for word in ("--level", level)]
                self.compare(profiles / model / "graph.txt", *words, "--memory", "16GB",
                             "--profile-batch", 64)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, verbosity=2).result.wasSuccessful() else 1)
