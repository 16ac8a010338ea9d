#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`penstock plan` and the profiles and models that `penstock import` takes, as their users run them."""
import json
import os
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from command_case import CommandCase, of_penstock

MEASURED = "tests/scenarios/profiles/tiny.yaml"  # a calibration of two devices
LAYERS = """layer,forward,backward,activation,parameters
conv,4 ms,8 ms,1 MB,1 KB
pool,1 ms,2 ms,1 MB,0
fc1,2 ms,4 ms,1 KB,4 MB
fc2,1 ms,2 ms,1 KB,2 MB
"""
CONFIG = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257,
          "n_positions": 1024}


class Case(CommandCase):
    ENVIRONMENT = of_penstock()

    def setUp(self):
        super().setUp()
        self.layers = self.folder / "layers.csv"
        self.layers.write_text(LAYERS)

    def plan(self, *words):
        return json.loads(self.ok("plan", *words, "--format", "json"))

    def no_plan(self, *words):
        return self.refused("plan", *words)


class Profiles(Case):
    def test_a_straight_pipeline_is_as_fast_as_its_slowest_stage(self):
        result = self.plan(self.layers, "--level", "2x10GB/s", "--straight")
        best = result["plans"][0]
        self.assertEqual([s["replicas"] for s in best["stages"]], [1, 1])
        self.assertAlmostEqual(best["time_per_stage_s"], 0.012)
        self.assertAlmostEqual(best["speedup"], 2)
        self.assertEqual((best["depth"], best["width"]), (2, 1))

    def test_every_planner_gives_the_fields_others_rely_on(self):
        for name in ("pipedream", "2bw", "dapple", "torchgpipe", "uniform"):
            with self.subTest(name):
                result = self.plan(self.layers, "--level", "2x10GB/s", "--search", name)
                plan = result["plans"][0]
                for field in ("time_per_stage_s", "throughput_samples_per_s", "microbatch_size"):
                    self.assertGreater(plan[field], 0)
                self.assertIn(plan["recompute"], ("none", "full"))
                self.assertEqual(plan["depth"], len(plan["stages"]))
                self.assertEqual(plan["stages"][0]["first_layer"], 0)
                self.assertEqual(plan["stages"][-1]["last_layer"], 3)

    def test_the_profile_batch_scales_samples_and_not_stage_times(self):
        words = (self.layers, "--level", "2x10GB/s")
        one, many = self.plan(*words), self.plan(*words, "--profile-batch", "64")
        self.assertEqual(one["plans"][0]["time_per_stage_s"], many["plans"][0]["time_per_stage_s"])
        self.assertAlmostEqual(many["plans"][0]["throughput_samples_per_s"],
                               64 * one["plans"][0]["throughput_samples_per_s"])

    def test_too_little_memory_is_a_result_with_its_reason(self):
        result = self.plan(self.layers, "--level", "2x10GB/s", "--straight", "--memory", "1KB")
        self.assertEqual(result["plans"], [])
        self.assertTrue(result["infeasible_because"])

    def test_table_and_csv_say_the_same_plan(self):
        words = ("plan", self.layers, "--level", "2x10GB/s", "--straight")
        self.assertIn("0-0", self.ok(*words))
        rows = self.ok(*words, "--format", "csv").splitlines()
        self.assertEqual(len(rows), 2)
        self.assertIn("0-0x1 1-3x1", rows[1])


class Refusals(Case):
    def test_all_wrong_options_are_said_at_once(self):
        said = self.no_plan(self.layers, "--level", "4", "--memory", "16", "--top", "0")
        for option in ("--level", "--memory", "--top"):
            self.assertIn(option, said)

    def test_what_a_model_lacks_and_what_is_not_for_it_is_said_at_once(self):
        said = self.no_plan("gpt-2.2b", "--search", "2bw", "--objective", "memory", "--set", "x=1",
                            "--profile-batch", 2)
        for option in ("needs --cluster", "--objective", "--set", "--profile-batch"):
            self.assertIn(option, said)

    def test_a_profile_takes_levels_or_a_cluster(self):
        self.assertIn("--level", self.no_plan(self.layers, "--level", "2x10GB/s", "--cluster",
                                              "p3.16xlarge"))

    def test_a_mistyped_planner_is_suggested_for(self):
        self.assertIn("pipedream", self.no_plan(self.layers, "--search", "pipedrem"))

    def test_a_profile_without_devices_says_how_to_give_them(self):
        self.assertIn("--level", self.no_plan(self.layers))

    def test_a_model_without_a_cluster_says_how_to_give_it(self):
        self.assertIn("--cluster", self.no_plan("gpt-2.2b"))

    def test_layers_without_times_cannot_be_balanced(self):
        self.layers.write_text("layer,time\na,0\nb,0\n")
        self.assertIn("no layer takes any time", self.no_plan(self.layers, "--level", "2x1GB/s"))

    def test_abstract_costs_have_no_layers_to_split(self):
        scenario = self.folder / "abstract.yaml"
        scenario.write_text("model: {forward: 1 s, backward: 2 s}\ncluster: {link: {latency: 0}}\n"
                            "schedule: 1f1b\npipeline: {stages: 2, microbatches: 4}\n")
        self.assertIn("no layers", self.no_plan(scenario))


class Transformers(Case):
    def test_2bw_does_not_believe_its_formula(self):
        """It leaves out that the eight reductions of a server share its NIC."""
        for model in ("gpt-2.2b", "bert-2.2b"):
            with self.subTest(model):
                result = self.plan(model, "--cluster", "p3.16xlarge-x8", "--batch", "512", "--search", "2bw",
                                   "--top", 100)
                best = result["plans"][0]
                rates = [p["simulated_samples_per_s"] for p in result["plans"]]
                self.assertEqual(rates, sorted(rates, reverse=True))
                self.assertEqual((best["depth"], best["width"]), (16, 4))
                promised = max(result["plans"], key=lambda p: p["throughput_samples_per_s"])
                self.assertEqual((promised["depth"], promised["width"]), (8, 8))
                self.assertLess(promised["simulated_samples_per_s"], 0.5 * promised["throughput_samples_per_s"])

    def test_a_scenario_gives_model_cluster_and_batch(self):
        scenario = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "scenarios/gpt-3.8b-2bw-64.yaml"
        result = self.plan(scenario, "--search", "2bw", "--top", "3")
        self.assertEqual(result["devices"], 64)
        self.assertEqual(result["plans"][0]["depth"], 16)
        self.assertEqual(len(result["plans"]), 3)
        rates = [p["simulated_samples_per_s"] for p in result["plans"]]
        self.assertEqual(rates, sorted(rates, reverse=True))

    def test_what_is_said_of_a_plan_is_what_simulate_says(self):
        """Of a large model, and of a small one for planners whose plan of that does not fit: every one's time is compared."""
        left = ["pipedream", "2bw", "dapple", "torchgpipe", "uniform"]
        for model, batch in (("gpt-2.2b", 128), ("gpt-355m", 64)):
            for name in list(left):
                with self.subTest(f"{name} {model}"):
                    job = self.folder / "job.yaml"
                    job.write_text(f"model: {model}\nstack: none\ncluster: {{base: p3.16xlarge, nodes: 2}}\n"
                                   "schedule: 1f1b\npipeline: {stages: 1}\n")
                    plan = self.plan(job, "--batch", batch, "--search", name, "--microbatch-size", "4")["plans"][0]
                    result = self.simulated(name, plan, model)
                    self.assertTrue(plan["simulated_samples_per_s"] or plan["simulated_why_not"])
                    if plan["simulated_samples_per_s"]:
                        left.remove(name)
                        self.assertAlmostEqual(plan["simulated_samples_per_s"] / result["throughput_samples_per_s"], 1,
                                               places=9)
                    else:
                        self.assertFalse(result["feasible"])
        self.assertEqual(left, [])

    def simulated(self, name, plan, model):
        """The plan written down by hand."""
        layers = [s["last_layer"] - s["first_layer"] + 1 for s in plan["stages"]]
        widths = [s["replicas"] for s in plan["stages"]]
        alike = len(set(widths)) == 1
        schedule = plan["schedule"]
        if name == "pipedream" and plan["depth"] == 1:
            schedule = "data-parallel"
        pipeline = {"stages": plan["depth"], "width": widths[0] if alike else widths,
                    "microbatch_size": plan["microbatch_size"], "microbatches": plan["microbatches"],
                    "split": layers, "placement": [d for s in plan["stages"] for d in s["devices"]]}
        if schedule == "gpipe-torchgpipe" or name == "torchgpipe":
            pipeline["checkpoint"] = "except_last"
        else:
            pipeline["recompute"] = plan["recompute"]
        if name == "dapple" and max(widths) > 1:
            pipeline["replication"] = "split"
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps({"model": model, "stack": "none", "cluster": {"base": "p3.16xlarge", "nodes": 2}, "schedule": schedule,
                                    "pipeline": pipeline}))
        return json.loads(self.ok("simulate", file, "--engine", "auto", "--format", "json"))

    def test_a_cluster_may_be_a_map(self):
        nodes = "{base: dgx-a100, nodes: 4}"
        for model in ("gpt-2.2b", self.layers):
            with self.subTest(model):
                result = self.plan(model, "--cluster", nodes, "--batch", 512, "--search", "2bw")
                self.assertEqual(result["devices"], 32)
                self.assertTrue(result["plans"])
        self.assertIn("--cluster", self.no_plan(self.layers, "--cluster", "{base: "))
        self.assertIn("dgx-a100", self.no_plan("gpt-2.2b", "--cluster", "{base: dgx-a10}"))


def part_s(layers, embedding, head):
    """F + B in tiny.yaml, two devices at work, microbatches of 2."""
    return layers * 3e-3 + embedding * 1.2e-3 + head * 2.7e-3


class Default(Case):
    """What answers where nobody says who: our own search, where it can be asked."""
    CLUSTER = "{devices: 4, link: 10 GB/s, device: {name: d, peak: {fp16: 10 TFLOP/s}, memory: 8 GB, efficiency: [[1024, 50%]]}}"
    MODEL = ("{family: gpt, num_layers: 8, hidden_size: 1024, num_attention_heads: 8, vocab_size: 8000, seq_length: 512, "
             "precision: mixed-fp16}")

    def searched(self, *words):
        result = self.plan(*words)
        return result["search"], [note for note in result["notes"] if "cannot be asked" in note]

    def test_of_a_model_a_scenario_and_a_calibration_it_is_our_own_search(self):
        scenario = self.folder / "case.yaml"
        scenario.write_text(f"stack: none\nmodel: {self.MODEL}\ncluster: {self.CLUSTER}\nschedule: 1f1b\n"
                            "pipeline: {stages: 4, global_batch_size: 16}\n")
        for words in ((self.MODEL, "--cluster", self.CLUSTER, "--batch", 16), (scenario,), (MEASURED, "--batch", 8)):
            with self.subTest(words[0]):
                self.assertEqual(self.searched(*words), ("full", []))
        self.assertEqual(self.searched(scenario, "--search", "2bw"), ("2bw", []))

    def test_of_a_profile_it_is_pipedream(self):
        self.assertEqual(self.searched(self.layers, "--level", "2x10GB/s"), ("pipedream", []))

    def test_where_ours_cannot_be_asked_2bw_answers_and_a_line_says_why(self):
        asp = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "scenarios/gpt-355m-asp.yaml"
        model = (self.MODEL, "--cluster", self.CLUSTER)
        for why, words in (("'servers' needs algorithm", (asp,)),
                           ("--no-transfers is pipedream's", (*model, "--batch", 16, "--no-transfers"))):
            with self.subTest(why):
                search, notes = self.searched(*words)
                self.assertEqual((search, len(notes)), ("2bw", 1))
                self.assertIn("this is 2bw's plan: our own search", notes[0])
                self.assertIn(why, notes[0])
                self.assertIn(f"note: {notes[0]}\n", self.ok("plan", *words))
                self.assertIn(notes[0], self.run_command("plan", *words, "--format", "csv").stderr)

    def test_without_a_batch_a_usual_one_is_taken_and_said(self):
        model = (self.MODEL, "--cluster", self.CLUSTER)
        for samples, each, words in ((16, 4, model), (32, 8, (*model, "--microbatch-size", 2)),
                                     (16, 8, (MEASURED,))):  # on two GPUs, two samples and more
            with self.subTest(words[0]):
                result = self.plan(*words, "--effort", 50)
                self.assertEqual((result["search"], result["batch"]), ("full", samples))
                note = next(n for n in result["notes"] if "no batch is given" in n)
                self.assertIn(f"{samples} samples per update, {each} for each GPU", note)
                self.assertIn(note, self.run_command("plan", *words, "--effort", 50, "--format", "csv").stderr)


    def test_every_planner_says_the_batch_of_its_plan(self):
        of_all = ("dapple", "torchgpipe")  # whose microbatches are those of all replicas
        model, differ = (self.MODEL, "--cluster", self.CLUSTER), set()
        for name in ("pipedream", "2bw", "dapple", "torchgpipe", "uniform"):
            for batch in (3, 16, 96, 100):
                words = (*model, "--search", name, "--batch", batch, "--microbatch-size", 8)
                with self.subTest(words):
                    result = self.plan(*words)
                    text = self.ok("plan", *words)
                    for plan in result["plans"]:
                        replicas = 1 if name in of_all else plan["stages"][0]["replicas"]
                        self.assertEqual(result["batch"], plan["microbatch_size"] * plan["microbatches"] * replicas)
                    self.assertIn(f"on 4 devices, a batch of {result['batch']} samples\n", text)
                    said = [note for note in result["notes"] if note.startswith(f"batch: {result['batch']} samples, not {batch}: ")]
                    self.assertEqual(len(said), result["batch"] != batch, result["notes"])
                    differ |= {name} if said else set()
        self.assertEqual(differ, {"pipedream", *of_all})

    def test_the_time_limit_holds_for_every_planner(self):
        for name in ("pipedream", "2bw", "dapple", "torchgpipe", "uniform"):
            words = (self.MODEL, "--cluster", self.CLUSTER, "--search", name, "--batch", 64)
            with self.subTest(name):
                ended = self.plan(*words, "--time-limit", 1e-9)
                self.assertTrue([n for n in ended["notes"] if "the time ended" in n], ended["notes"])
                self.assertEqual({p["simulated_samples_per_s"] for p in ended["plans"]}, {None})
                self.assertEqual(self.plan(*words, "--time-limit", 1000), self.plan(*words))
            self.assertIn("must be a number", self.no_plan(*words, "--time-limit", "no"))


class Calibrations(Case):
    def scenario(self, model=MEASURED, **pipeline):
        file = self.folder / "measured.yaml"
        source = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / MEASURED
        file.write_text(f"model: {model if '{' in model else source}\ncluster: {source}\n"
                        "schedule: 1f1b\npipeline: " +
                        json.dumps({"stages": 2, "microbatches": 4, "microbatch_size": 2} | pipeline))
        return file

    def test_layers_take_the_times_that_were_measured(self):
        for given in (self.scenario(), MEASURED):
            with self.subTest(given):
                result = self.plan(given, "--search", "torchgpipe", "--batch", 8)
                stages = result["plans"][0]["stages"]
                layers = [s["last_layer"] - s["first_layer"] + 1 for s in stages]
                self.assertEqual(sum(layers), 4)
                self.assertAlmostEqual(stages[0]["time_s"], part_s(layers[0], 1, 0))
                self.assertAlmostEqual(stages[1]["time_s"], part_s(layers[1], 0, 1))
                self.assertTrue(any("2 devices at work" in note for note in result["notes"]))

    def test_the_load_is_what_the_scenario_asks_for(self):
        source = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / MEASURED
        alone = self.scenario(f"{{base: {source}, measured_load: alone}}")
        result = self.plan(alone, "--search", "torchgpipe")
        self.assertAlmostEqual(result["single_device_s"], 4 * 1.5e-3 + 1.2e-3 + 2.7e-3)
        self.assertTrue(any("a device alone" in note for note in result["notes"]))

    def test_every_planner_keeps_to_what_was_measured(self):
        for name in ("pipedream", "2bw", "dapple", "torchgpipe", "uniform"):
            with self.subTest(name):
                plan = self.plan(MEASURED, "--search", name, "--batch", 16)["plans"][0]
                self.assertIn(plan["microbatch_size"], (2, 3, 4))
                self.assertEqual(plan["recompute"], "none")

    def test_what_was_not_measured_is_said(self):
        for option, size in (("--microbatch-size", 8), ("--microbatch-size", 1)):
            self.assertIn("only of 2, 4", self.no_plan(self.scenario(), option, size))

    def test_a_calibration_goes_on_other_clusters(self):
        result = self.plan(MEASURED, "--cluster", "{devices: 4, link: 1 GB/s}", "--search", "uniform",
                           "--batch", 32)
        self.assertEqual(result["devices"], 4)


class Imports(Case):
    def simulated(self, text):
        file = self.folder / "imported.yaml"
        file.write_text(text)
        return json.loads(self.ok("simulate", file, "--engine", "exact", "--format", "json"))

    def test_a_profile_becomes_a_scenario_that_runs(self):
        text = self.ok("import", self.layers, "--stages", "2")
        self.assertEqual(len(self.simulated(text)["devices"]), 2)

    def test_a_hugging_face_model_becomes_a_model_file(self):
        config = self.folder / "config.json"
        config.write_text(json.dumps(CONFIG))
        model = self.folder / "model.yaml"
        model.write_text(self.ok("import", config))
        self.assertIn("no peak rate for bf16", self.no_plan(model, "--cluster", "p3.16xlarge"))
        words = ("--cluster", "dgx-a100", "--batch", "64", "--search", "2bw")
        self.assertEqual(self.plan(model, *words)["plans"], self.plan(config, *words)["plans"])

    def test_more_stages_than_layers_are_refused(self):
        self.assertIn("--stages", self.refused("import", self.layers, "--stages", "5"))


class Released(Case):
    def test_a_branchy_profile_on_two_levels_is_what_the_released_program_found(self):
        shared = pathlib.Path(os.environ.get("PENSTOCK_SHARED")
                              or pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "../shared")
        profile = shared / "data/pipedream_profiles/resnet50/graph.txt"
        if not shared.exists():
            self.skipTest(f"test vectors not found: shared folder {shared}")
        result = self.plan(profile, "--level", "4x12GB/s", "--level", "4x1.25GB/s")
        best = result["plans"][0]
        self.assertAlmostEqual(best["time_per_stage_s"], 0.043208, delta=5e-7)
        self.assertAlmostEqual(best["speedup"], 10.2623, delta=5e-5)
        self.assertAlmostEqual(best["dp_speedup"], 9.9321, delta=5e-5)
        used = sorted(d for s in best["stages"] for d in s["devices"])
        self.assertEqual(used, list(range(16)))


if __name__ == "__main__":
    unittest.main()
