# SPDX-License-Identifier: Apache-2.0
"""Sailor's measurements as a table of runs: validate/sailor_runs.py, part by part and on folders.

Needs $PENSTOCK_SOURCE.
"""

import csv
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "validate"))
import sailor_runs as sailor  # noqa: E402

NETWORK = {"inter": {"A": {"2": [[-1, 4, 10], 20e9]}}, "intra": {}}
TINY = {"model": "tiny", "num_layers": 2, "hidden_size": 64, "heads": 4, "vocab_size": 512, "sequence_length": 128}
LLAMA = sailor.Shape("llama", 2, 64, 4, 2, 96, 500, 128, gated=True)


def plan(depth=1, width=1, microbatch_size=1, batch=1, layers=4, tensor=2, gpu="A"):
    """Layers evenly over the stages."""
    stages = [list(range(layers * s // depth, layers * (s + 1) // depth)) for s in range(depth)]
    replicas = [[[[[gpu, 4, "z"]], tensor] for _ in range(width)] for _ in range(depth)]
    return {"pipeline_list": [{"layers_per_stage": stages, "tmp_per_stage": replicas}], "mbs": microbatch_size, "gbs": batch,
            "real": 1.5, "red_grads": 0.1, "max_mem": 1000000}


def profile(scale=1, layers=4):
    """Every layer takes `scale` * (1, 2) s, its update 0.3 s."""
    return {"1": {"2": {str(layer): [scale, 2 * scale, 0.3] for layer in range(layers)}}}


class Folder(unittest.TestCase):
    """A plan with the folders around it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="penstock-sailor-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.put("configs/network_coeffs_all_homo.json", NETWORK)
        self.put("configs/training_config_tiny.json", TINY)
        self.put("profiles/tiny/A/profile.json", profile())
        self.plan = self.put("measured/N1/plan.json", plan())

    def put(self, name, value):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(path)

    def plan_is(self, *arguments, **named):
        self.put("measured/N1/plan.json", plan(*arguments, **named))

    def converted(self, *arguments):
        return subprocess.run([sys.executable, "-I", str(SOURCE / "validate/sailor_runs.py"), *arguments, self.plan], text=True,
                              capture_output=True, check=False)

    def row(self, *arguments):
        done = self.converted(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual(len(rows), 1)
        return rows[0]

    def scenario(self, *arguments):
        return json.loads(self.row(*arguments)["scenario_json"])

    def refused(self, *arguments):
        done = self.converted(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        return done.stderr


def numbers(values):
    return [float(value.split()[0]) for value in values]


class Plan(Folder):
    def test_is_read_with_its_measurements(self):
        self.plan_is(2, 3, 1, 12)
        read = sailor.read_plan(self.plan)
        self.assertEqual((read.depth, read.width, read.layers, read.microbatches, read.gpus()), (2, 3, 4, 4, ["A"]))
        self.assertEqual((read.measured_s, read.max_bytes), (1.5, 1000000))
        row = self.row()
        self.assertEqual((row["id"], row["model"], row["pp"], row["iteration_s"]), ("plan", "tiny", "2", "1.5"))
        self.assertEqual(float(row["peak_gib"]) * 2**30, 1000000)

    def test_what_was_not_measured_is_left_out(self):
        without = plan()
        del without["real"], without["max_mem"]
        self.put("measured/N1/plan.json", without)
        self.assertEqual((self.row()["iteration_s"], self.row()["peak_gib"]), ("", ""))

    def test_errors_name_the_place_and_what_is_allowed(self):
        def error(text):
            self.put("measured/N1/plan.json", text)
            return self.refused()
        self.assertIn("plan.json:2:8: is not JSON from here on", error('{"mbs": 1,\n "gbs" 2}'))
        two = error('{"pipeline_list":[],"mbs":0}')
        self.assertIn("mbs: must be an integer from 1 to 1048576, got 0", two)
        self.assertIn("'gbs' is missing", two)
        self.assertIn("holds no pipeline", error('{"pipeline_list":[],"mbs":1,"gbs":1}'))
        self.assertIn("layers must be 0, 1, 2", error(json.dumps(plan(2)).replace("[2, 3]", "[1, 3]")))
        self.assertIn("pipeline_list[0].tmp_per_stage[0][0]: must be [[[", error(json.dumps(plan()).replace('"z"', "7")))
        self.assertIn("over several zones", error(json.dumps(plan(2)).replace('"z"', '"y"', 1)))
        for text in ("[]", "7", "null", '"a"'):
            self.assertIn("must be an object", error(text))
        for field, value in (("mbs", True), ("gbs", 1e300), ("max_mem", -1), ("real", "fast"), ("pipeline_list", 3),
                             ("pipeline_list", [3]), ("pipeline_list", [{"layers_per_stage": 1, "tmp_per_stage": [1]}])):
            self.assertIn(f"{field}", error(json.dumps(plan() | {field: value})))

    def test_json_that_python_would_take_is_refused(self):
        def error(text):
            self.put("measured/N1/plan.json", text)
            return self.refused()
        self.assertIn("has the key 'mbs' twice", error('{"mbs": 1, "mbs": 1}'))
        self.assertIn("'NaN' is no number", error('{"real": NaN}'))
        self.assertIn("nested more than", error("[" * 300000))
        pathlib.Path(self.plan).write_bytes(b'{"a": "\xff"}')
        self.assertIn("utf-8", self.refused())

    def test_problems_are_said_for_a_program_too(self):
        self.put("measured/N1/plan.json", '{"mbs": 1,\n "gbs" 2}')
        done = self.converted("--problems=json")
        self.assertEqual((done.returncode, done.stderr), (2, ""))
        self.assertEqual(json.loads(done.stdout), [[self.plan, 2, 8, "is not JSON from here on"]])


class Profile(Folder):
    def read(self, value):
        return sailor.Profile.read(self.put("p.json", value))

    def error(self, work):
        with self.assertRaises(sailor.Refused) as raised:
            work()
        return "\n".join(message for _, _, _, message in raised.exception.problems)

    def test_names_the_sizes_that_it_has(self):
        read = self.read(profile())
        self.assertEqual(self.error(lambda: read.times(8, 2, 0)), "has no times for microbatches of 8; it has 1")
        self.assertEqual(self.error(lambda: read.times(1, 4, 0)),
                         "has no times for microbatches of 1 on 4 GPUs; it has tensor degrees 2")
        wrong = self.error(lambda: self.read({"x": {}, "1": {"2": {}}}))
        self.assertIn("'x' is not a microbatch size", wrong)
        self.assertIn("1.2: must be {layer: [forward, backward, update]}", wrong)
        unlike = {"1": profile()["1"], "2": profile(1, 5)["1"]}
        self.assertIn("must have the same layers", self.error(lambda: self.read(unlike)))
        self.assertIn("layer 0 must have", self.error(lambda: self.read({"1": {"1": {"0": [1, 2, -1]}}})))

    def test_launches_are_taken_back_where_more_sequences_are_faster(self):
        read = self.read({"1": {"1": {"0": [3, 2, 0]}, "4": {"0": [6, 2, 0]}},
                          "2": {"1": {"0": [5, 4, 0]}, "4": {"0": [4, 3, 0]}}})
        self.assertEqual(read.times(1, 4, 0)[0], 3)  # 6 > 4: bound by launches; 3 on one GPU
        self.assertEqual(read.times(1, 4, 0)[1], 2)  # 2 < 3: as measured
        self.assertEqual(read.times(2, 4, 0)[0], 4)
        self.assertEqual(read.times(1, 1, 0)[0], 3)

    def test_is_estimated_from_what_another_model_gains(self):
        elsewhere, start, end = self.read(profile(3)), self.read(profile(8, 5)), self.read(profile(2, 5))
        estimated = sailor.estimated(elsewhere, [(start, end)], "d")
        self.assertEqual(estimated.layers, 4)
        self.assertAlmostEqual(estimated.times(1, 2, 1)[0], 0.75)
        self.assertAlmostEqual(estimated.times(1, 2, 3)[1], 1.5)
        self.assertEqual(sailor.estimated(elsewhere, [], "d").table, {})


class Network(Folder):
    def test_follows_its_curve_up_to_its_vertex(self):
        network = sailor.Network(self.put("n.json", NETWORK))
        self.assertAlmostEqual(network.bytes_per_s("A", 2, 2e6), (-1 + 4 + 10) * 1e9 / 2)
        self.assertAlmostEqual(network.bytes_per_s("A", 2, 1e3), 10e9 / 2)
        self.assertAlmostEqual(network.bytes_per_s("A", 2, 1e12), 14e9 / 2)
        for gpu, senders, message in (("B", 2, "has no bandwidths between nodes of B; it has A"),
                                      ("A", 4, "has no bandwidths for 4 GPUs of a node of A; it has those for 2")):
            with self.assertRaises(sailor.Refused) as raised:
                network.bytes_per_s(gpu, senders, 1)
            self.assertEqual(raised.exception.problems[0][3], message)


class Scenario(Folder):
    def test_a_stage_takes_the_times_of_its_layers(self):
        self.plan_is(1, 1, 1, 5)
        one = self.scenario()
        self.assertEqual((numbers(one["model"]["forward"]), numbers(one["model"]["backward"])), ([4], [8]))
        self.assertAlmostEqual(numbers(one["model"]["step"])[0], 4 * 0.3 / 3)
        self.assertEqual(one["pipeline"]["microbatches"], 5)
        self.plan_is(2, 3, 1, 6)
        two = self.scenario()
        self.assertEqual(numbers(two["model"]["forward"]), [2, 2])
        self.assertEqual((two["pipeline"]["stages"], two["pipeline"]["width"], two["cluster"]["devices"]), (2, 3, 6))

    def test_a_stage_is_as_slow_as_its_slowest_kind_of_gpu(self):
        self.put("profiles/tiny/B/profile.json", profile(2))
        mixed = plan(2, 2, 1, 4)
        mixed["pipeline_list"][0]["tmp_per_stage"][1][0] = [[["B", 4, "z"]], 2]
        self.put("measured/N1/plan.json", mixed)
        self.put("configs/network_coeffs_all_homo.json",
                 {"inter": {"A": {"2": [[0, 0, 10], 20e9]}, "B": {"2": [[0, 0, 6], 20e9]}}})
        scenario = self.scenario()
        self.assertEqual(numbers(scenario["model"]["forward"]), [2, 4])
        self.assertEqual(numbers([scenario["cluster"]["link"]["bandwidth"]]), [3e9])
        self.assertEqual(scenario["cluster"]["device"]["name"], "A and B")

    def test_messages_are_fp32_one_direction_after_the_other(self):
        self.plan_is(2)
        scenario, size = self.scenario(), 4 * 2 * 128 * 64
        self.assertEqual(scenario["model"]["output"], f"{size} B")
        network = sailor.Network(self.put("n.json", NETWORK))
        self.assertEqual(numbers([scenario["cluster"]["link"]["bandwidth"]]), [network.bytes_per_s("A", 2, size)])

    def test_without_messages_the_nics_carry_parts_of_gradients(self):
        self.plan_is(1, 4, 1, 4)
        scenario = self.scenario()
        network = sailor.Network(self.put("n.json", NETWORK))
        part = numbers(scenario["model"]["gradients"])[0] / 4
        self.assertEqual(numbers([scenario["cluster"]["link"]["bandwidth"]]), [network.bytes_per_s("A", 2, part)])

    def test_a_rank_holds_its_share_of_the_stage(self):
        """As penstock's models count a GPT of 2 layers on 2 GPUs, by hand: of a block 12 h^2 + 13 h, of
        which 12 h^2 + 7 h are divided; s b h (10 + 24/t + 5 a s / (h t)) bytes of activations."""
        self.plan_is(2, 1, 1, 4)
        held = self.scenario()["model"]
        h, s, heads, rows, t = 64, 128, 4, 256, 2
        first = (rows + s) * h + (12 * h * h + 7 * h) // t + 6 * h
        self.assertEqual((numbers(held["parameters"])[0], numbers(held["gradients"])[0], numbers(held["optimizer"])[0]),
                         (2 * first, 4 * first, 12 * first))
        self.assertEqual(numbers(held["parameters"])[1], 2 * ((12 * h * h + 7 * h) // t + 6 * h + rows * h + 2 * h))
        self.assertEqual(numbers(held["activation"])[1], s * h * (10 + 24 / t) + 5 * heads * s * s / t)
        scores = 3 * 2 * s * s * heads / t
        self.assertEqual(numbers(held["workspace"]), [scores, scores + 14 * s * rows])

    def test_a_llama_has_gates_and_no_biases(self):
        h, kv, ffn, s, t = 64, 32, 96, 128, 2
        self.assertEqual(LLAMA.block_parameters(t), (h * (2 * h + 2 * kv) + 3 * h * ffn) // t + 2 * h)
        self.assertEqual((LLAMA.embedding_parameters(t), LLAMA.head_parameters(t)), (256 * h, 256 * h + h))
        self.assertEqual(LLAMA.block_activation_bytes(1, t),
                         2 * s * 4 * h + 2 * s * (2 * h + 2 * kv + 3 * ffn) / t + 2 * 4 * s * s / t)

    def test_a_profile_of_another_model_is_refused(self):
        self.put("profiles/tiny/A/profile.json", profile(1, 5))
        self.assertIn("plan.json: has 4 layers, but the profile of tiny on A has 5", self.refused("--model=tiny"))


class Library(Folder):
    def test_the_model_is_the_one_with_such_layers(self):
        self.put("profiles/other/A/profile.json", profile(1, 5))
        self.assertEqual(self.row()["model"], "tiny")
        self.assertEqual(self.scenario()["model"]["output"], f"{4 * 2 * 128 * 64} B")

    def test_ambiguity_is_an_error(self):
        self.put("profiles/other/A/profile.json", profile())
        self.assertIn("plan.json: several models have 4 layers on A: other, tiny; say which with --model", self.refused())
        self.assertEqual(self.row("--model=tiny")["model"], "tiny")

    def test_unknown_models_and_gpus_are_named(self):
        self.assertIn("there are tiny", self.refused("--model=huge"))
        self.plan_is(layers=7)
        self.assertIn("has 7 layers on A", self.refused())
        (self.root / "profiles/tiny/A").rename(self.root / "profiles/tiny/B")
        self.assertIn("tiny has no usable profile on A; it has those on B", self.refused("--model=tiny"))

    def test_missing_folders_are_named(self):
        (self.root / "profiles").rename(self.root / "times")
        self.assertIn("give one with --profiles DIR", self.refused())
        self.assertEqual(self.row(f"--profiles={self.root}/times")["model"], "tiny")
        self.put("profiles/tiny/A/profile.json", profile())
        for file in (self.root / "configs").iterdir():
            file.unlink()
        self.assertIn("network_coeffs_all_homo.json: is missing", self.refused())

    def test_a_model_without_a_shape_is_named(self):
        self.put("profiles/other/A/profile.json", profile(1, 5))
        self.plan_is(layers=5)
        self.assertIn("other: has layer times but no training configuration", self.refused())

    def test_a_profile_that_is_not_its_models_is_estimated(self):
        self.put("profiles/tiny/B/profile.json", profile(1, 9))
        self.put("profiles/other/A/profile.json", profile(6, 9))
        self.put("profiles/other/B/profile.json", profile(3, 9))
        self.put("configs/network_coeffs_all_homo.json", {"inter": {"B": {"2": [[0, 0, 10], 20e9]}}})
        self.plan_is(gpu="B")
        row = self.row()
        self.assertEqual(row["model"], "tiny")
        self.assertEqual(numbers(json.loads(row["scenario_json"])["model"]["forward"]), [4 * 0.5])
        self.assertIn("the profile of tiny on B is left out: it has 9 layers, the model 2 blocks; times of tiny on B are "
                      "estimated", row["note"])


if __name__ == "__main__":
    unittest.main()
