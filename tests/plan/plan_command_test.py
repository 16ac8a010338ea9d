#!/usr/bin/env python3
"""`penstock plan` and the profiles and models that `penstock import` takes, as their users run them."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BINARY = os.environ["PENSTOCK_BINARY"]
LAYERS = """layer,forward,backward,activation,parameters
conv,4 ms,8 ms,1 MB,1 KB
pool,1 ms,2 ms,1 MB,0
fc1,2 ms,4 ms,1 KB,4 MB
fc2,1 ms,2 ms,1 KB,2 MB
"""
CONFIG = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257,
          "n_positions": 1024}


def run(*words):
    return subprocess.run([BINARY, *words], capture_output=True, text=True, check=False)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.layers = self.folder / "layers.csv"
        self.layers.write_text(LAYERS)

    def plan(self, *words):
        done = run("plan", *map(str, words), "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refused(self, *words):
        done = run("plan", *map(str, words))
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stderr


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
        words = ("plan", str(self.layers), "--level", "2x10GB/s", "--straight")
        self.assertIn("0-0", run(*words).stdout)
        rows = run(*words, "--format", "csv").stdout.splitlines()
        self.assertEqual(len(rows), 2)
        self.assertIn("0-0x1 1-3x1", rows[1])


class Refusals(Case):
    def test_all_wrong_options_are_said_at_once(self):
        said = self.refused(self.layers, "--level", "4", "--memory", "16", "--top", "0")
        for option in ("--level", "--memory", "--top"):
            self.assertIn(option, said)

    def test_a_mistyped_planner_is_suggested_for(self):
        self.assertIn("pipedream", self.refused(self.layers, "--search", "pipedrem"))

    def test_a_profile_without_devices_says_how_to_give_them(self):
        self.assertIn("--level", self.refused(self.layers))

    def test_a_model_without_a_cluster_says_how_to_give_it(self):
        self.assertIn("--cluster", self.refused("gpt-2.2b"))

    def test_layers_without_times_cannot_be_balanced(self):
        self.layers.write_text("layer,time\na,0\nb,0\n")
        self.assertIn("no layer takes any time", self.refused(self.layers, "--level", "2x1GB/s"))

    def test_abstract_costs_have_no_layers_to_split(self):
        scenario = self.folder / "abstract.yaml"
        scenario.write_text("model: {forward: 1 s, backward: 2 s}\ncluster: {link: {latency: 0}}\n"
                            "schedule: 1f1b\npipeline: {stages: 2, microbatches: 4}\n")
        self.assertIn("no layers", self.refused(scenario))


class Transformers(Case):
    def test_2bw_takes_a_server_for_the_small_model_and_two_for_the_large(self):
        for model, depth in (("gpt-2.2b", 8), ("gpt-3.8b", 16), ("bert-2.2b", 8), ("bert-3.8b", 16)):
            with self.subTest(model):
                result = self.plan(model, "--cluster", "p3.16xlarge-x8", "--batch", "512")
                self.assertEqual(result["plans"][0]["depth"], depth)
                self.assertEqual(result["plans"][0]["width"], 64 // depth)

    def test_a_scenario_gives_model_cluster_and_batch(self):
        scenario = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "scenarios/gpt-3.8b-2bw-64.yaml"
        result = self.plan(scenario, "--search", "2bw", "--top", "3")
        self.assertEqual(result["devices"], 64)
        self.assertEqual(result["plans"][0]["depth"], 16)
        self.assertEqual(len(result["plans"]), 3)
        rates = [p["throughput_samples_per_s"] for p in result["plans"]]
        self.assertEqual(rates, sorted(rates, reverse=True))


class Imports(Case):
    def simulated(self, text):
        file = self.folder / "imported.yaml"
        file.write_text(text)
        done = run("simulate", str(file), "--engine", "exact", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_a_profile_becomes_a_scenario_that_runs(self):
        done = run("import", str(self.layers), "--stages", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.simulated(done.stdout)["devices"]), 2)

    def test_a_hugging_face_model_becomes_a_model_file(self):
        config = self.folder / "config.json"
        config.write_text(json.dumps(CONFIG))
        done = run("import", str(config))
        self.assertEqual(done.returncode, 0, done.stderr)
        model = self.folder / "model.yaml"
        model.write_text(done.stdout)
        words = ("--cluster", "p3.16xlarge", "--batch", "64")
        self.assertEqual(self.plan(model, *words)["plans"], self.plan(config, *words)["plans"])

    def test_more_stages_than_layers_are_refused(self):
        done = run("import", str(self.layers), "--stages", "5")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--stages", done.stderr)


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
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
