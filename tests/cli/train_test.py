#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`penstock train` as its users run it: the same bits as `replay` under every schedule, what a curve
says, what is kept of a run that is stopped, what is refused."""
import csv
import io
import json
import math
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
ENVIRONMENT = os.environ | {"PENSTOCK_HOME": str(SOURCE), "LC_ALL": "C.UTF-8"}
# Replicas that wait for no other: in which order they update is a matter of time.
WITHOUT_TRAINING = {"asp"}
GPT = """stack: none\nmodel: {{num_layers: 4, hidden_size: 32, num_attention_heads: 2, vocab_size: {vocabulary}, seq_length: 32,
        precision: fp32}}
cluster: {{base: p3.16xlarge}}
schedule: {schedule}
pipeline: {{stages: 4, microbatch_size: 4, microbatches: {microbatches}}}
training: {{data: {data}, updates: {updates}, learning_rate: 0.005, evaluate_every: 50}}
"""


def run(*words, **options):
    return subprocess.run([BINARY, *words], cwd=SOURCE, env=ENVIRONMENT, text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=250, **options)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="penstock-train-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def json(self, *words):
        done = run(*words, "--format", "json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return json.loads(done.stdout)

    def curve(self, *words):
        """The only run of the only scenario."""
        (scenario,) = self.json("train", *words)["scenarios"]
        (one,) = scenario["runs"]
        return scenario, one

    def gpt(self, name="gpt.yaml", schedule="pipedream-2bw", data="markov", vocabulary=16, microbatches=4, updates=150):
        path = self.folder / name
        path.write_text(GPT.format(schedule=schedule, data=data, vocabulary=vocabulary, microbatches=microbatches,
                                   updates=updates))
        return str(path)


class EverySchedule(Case):
    def test_ends_with_the_bits_of_its_execution(self):
        names = [s["name"] for s in self.json("schedule", "list")]
        self.assertGreater(len(names), 30)
        training = ("--set", "training.optimizer=adam", "--set", "training.clip=0.001", "--set", "training.warmup=2",
                    "--set", "training.decay=linear", "--set", "training.updates=3")
        digests = {}
        for name in names:
            if name in WITHOUT_TRAINING:
                continue
            with self.subTest(name):
                scenario = f"scenarios/small-{name}.yaml"
                one = ("--set", "pipeline.reduction.buckets=1") if name == "data-parallel" else ()
                _, trained = self.curve(scenario, *training, *one)
                replayed = self.json("replay", scenario, "--clock", "virtual", "--set", "batches=3", *training, *one)
                self.assertTrue(replayed["weights_equal"])
                self.assertEqual(replayed["weights_digest"], trained["weights_digest"])
                self.assertEqual(len(trained["curve"]), 3)
                digests[name] = trained["weights_digest"]
        # What learns differently has other weights.
        rules = ["1f1b", "pipedream", "pipedream-2bw", "pipemare", "timeprest", "i-timeprest"]
        self.assertEqual(len({digests[name] for name in rules}), len(rules))

    def test_the_variants_of_pipedream_and_pipemare(self):
        digests = set()
        for schedule, key in [("pipedream", "vertical_sync=true"), ("pipedream", "stashing=none"), ("pipedream", "stashing=all"),
                              ("pipemare", "correction=true"), ("pipemare", "correction=false"),
                              ("pipemare", "training.rescheduled=4")]:
            with self.subTest(f"{schedule} {key}"):
                words = (f"scenarios/small-{schedule}.yaml", "--set", key)
                _, trained = self.curve(*words, "--updates", "8")
                replayed = self.json("replay", *words, "--clock", "virtual", "--set", "batches=8")
                self.assertEqual(replayed["weights_digest"], trained["weights_digest"])
                digests.add(trained["weights_digest"])
        self.assertEqual(len(digests), 6)

    def test_without_stashing_there_is_one_version(self):
        of = lambda key: self.json("simulate", "scenarios/small-pipedream.yaml", "--set", key, "--engine", "exact")
        with_it, without = of("stashing=all"), of("stashing=none")
        self.assertEqual(without["iteration_time_s"], with_it["iteration_time_s"])
        versions = lambda r: [d["memory"]["weight_versions"] for d in r["devices"]]
        self.assertGreater(versions(with_it)[0], 0)
        self.assertEqual(set(versions(without)), {0})


class Asynchronous(Case):
    """Replicas that wait for no other, with the weights that they have in the simulated run."""
    ASP = """model: {forward: 1 s, backward: 2 s}
cluster: {devices: 3}
schedule: asp
pipeline: {width: 3, microbatches: 1}
training: {problem: linear, learning_rate: 0.3, updates: 40}
"""

    def asp(self, *words):
        path = self.folder / "asp.yaml"
        path.write_text(self.ASP)
        return self.curve(str(path), *words)

    def test_every_replica_updates(self):
        scenario, one = self.asp()
        self.assertEqual((scenario["replicas"], scenario["samples_per_update"]), (3, 1))
        self.assertEqual(len(one["curve"]), 3 * 40)
        times = [p["simulated_s"] for p in one["curve"]]
        self.assertEqual(times, sorted(times))
        self.assertAlmostEqual(times[2], 3)  # all three, at once
        self.assertLess(one["curve"][-1]["evaluation_loss"], 0.5 * one["curve"][0]["loss"])

    def test_a_straggler_changes_what_is_learned(self):
        _, even = self.asp()
        _, slow = self.asp("--set", "perturbations={slow_devices: [{device: 1, factor: 3}]}")
        self.assertNotEqual(even["weights_digest"], slow["weights_digest"])
        self.assertEqual(slow["curve"][1]["simulated_s"], 3)
        self.assertEqual(slow["curve"][3]["simulated_s"], 6)  # the third and fourth of the two fast ones

    def test_a_replica_alone_is_plain_descent(self):
        path = self.folder / "one.yaml"
        path.write_text(self.ASP.replace("width: 3", "width: 1").replace("devices: 3", "devices: 1"))
        _, one = self.curve(str(path))
        path.write_text(path.read_text().replace("asp", "1f1b").replace("width: 1", "stages: 1"))
        _, plain = self.curve(str(path))
        self.assertEqual(one["weights_digest"], plain["weights_digest"])

    def test_staleness_breaks_a_rate_that_one_replica_bears(self):
        rate = ("--set", "training.problem=quadratic", "--set", "training.learning_rate=0.8", "--updates", "200")
        _, three = self.asp(*rate)  # a delay of 2 updates: stable up to 0.618
        _, one = self.curve("scenarios/small-pipedream.yaml", "--set", "stages=1", *rate)
        self.assertLess(one["curve"][-1]["loss"], 1e-6)
        self.assertTrue(three["stopped_because"] or three["curve"][-1]["loss"] > 100)


class Curves(Case):
    def test_a_markov_chain_is_learned_and_its_entropy_is_a_floor(self):
        scenario, one = self.curve(self.gpt())
        self.assertAlmostEqual(scenario["loss_floor"], 1.75 * math.log(2))
        evaluated = [p["evaluation_loss"] for p in one["curve"] if "evaluation_loss" in p]
        self.assertEqual(len(evaluated), 3)
        self.assertGreater(one["curve"][0]["loss"], math.log(16) - 0.1)
        # 8 microbatches of 4 sequences of 32 tokens: their mean lies within 0.05 of the entropy.
        self.assertGreater(evaluated[-1], scenario["loss_floor"] - 0.05)
        self.assertLess(evaluated[-1], 2.0)
        self.assertEqual([p["update"] for p in one["curve"]], list(range(1, 151)))
        self.assertEqual(one["curve"][-1]["samples"], 150 * 16)

    def test_simulated_seconds_are_those_of_the_cluster(self):
        path = self.gpt(updates=12)
        _, one = self.curve(path)
        simulated = self.json("simulate", path, "--set", "batches=12", "--engine", "exact")
        times = [p["simulated_s"] for p in one["curve"]]
        self.assertEqual(times, sorted(times))
        self.assertLessEqual(times[-1], simulated["makespan_s"] * (1 + 1e-12))
        self.assertAlmostEqual(times[-1] - times[-2], simulated["iteration_time_s"], delta=simulated["iteration_time_s"] * 0.5)

    def test_a_text_is_learned_by_its_bytes(self):
        text = self.folder / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 200)
        scenario, one = self.curve(self.gpt(data=str(text), vocabulary=128, updates=60))
        self.assertIsNone(scenario["loss_floor"])
        self.assertLess(one["curve"][-1]["evaluation_loss"], one["curve"][0]["loss"] - 1.5)

    def test_seeds_differ_and_repeat(self):
        path = self.gpt(updates=4)
        (scenario,) = self.json("train", path, "--seeds", "3")["scenarios"]
        self.assertEqual([r["seed"] for r in scenario["runs"]], [1, 2, 3])
        self.assertEqual(len({r["weights_digest"] for r in scenario["runs"]}), 3)
        _, again = self.curve(path, "--set", "training.seed=2")
        self.assertEqual(again["weights_digest"], scenario["runs"][1]["weights_digest"])

    def test_csv_table_and_page_of_a_comparison(self):
        paths = [self.gpt(f"{s}.yaml", s, updates=4) for s in ("1f1b", "pipedream-2bw")]
        page = self.folder / "page.html"
        done = run("train", "--compare", *paths, "--seeds", "2", "--report", str(page), "--set", "training.evaluate_every=2")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(done.stdout.splitlines()), 4, done.stdout)
        self.assertIn("time to", done.stdout)
        self.assertIn('"kind":"learning"', page.read_text().replace('\\"', '"').replace(" ", ""))
        rows = list(csv.DictReader(io.StringIO(run("train", *paths, "--seeds", "2", "--format", "csv").stdout)))
        self.assertEqual(len(rows), 2 * 2 * 4)
        self.assertEqual({row["seed"] for row in rows}, {"1", "2"})

    def test_a_winner_is_named_only_where_seeds_tell(self):
        good, bad = self.gpt("good.yaml", updates=30), self.gpt("bad.yaml", updates=2)
        said = run("train", "--compare", bad, good, "--seeds", "2").stdout
        self.assertRegex(said, r"learned most: \S*good\S* \(loss ")
        page = self.folder / "page.html"
        # The same update rule, so the same losses but for what seeds do.
        alike = [self.gpt(f"{schedule}.yaml", schedule, updates=2) for schedule in ("1f1b", "gpipe")]
        said = run("train", "--compare", *alike, "--seeds", "2", "--report", str(page)).stdout
        self.assertRegex(said, r"learned most: within noise \(.* has the lowest mean loss .*; its seeds and those of .* overlap")
        self.assertIn("<b>within noise</b>", page.read_text())
        said = run("train", "--compare", bad, good).stdout
        self.assertRegex(said, r"learned most: within noise \(\S*good\S* has the lowest loss ")
        self.assertIn("one seed does not say", said)

    def test_an_interrupted_run_keeps_its_curve_and_goes_on(self):
        path, checkpoint, kept = self.gpt(updates=1200), self.folder / "run.ckpt", self.folder / "curve.json"
        _, whole = self.curve(path)
        words = ["train", path, "--checkpoint", str(checkpoint), "--resume", "--format", "json", "-o", str(kept)]
        process = subprocess.Popen([BINARY, *words], cwd=SOURCE, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 130)
        part = json.loads(kept.read_text())["scenarios"][0]["runs"][0]
        self.assertFalse(part["complete"])
        self.assertLess(len(part["curve"]), 1200)
        _, rest = self.curve(path, "--checkpoint", str(checkpoint), "--resume")
        self.assertEqual(rest["weights_digest"], whole["weights_digest"])
        self.assertEqual([p["loss"] for p in rest["curve"]], [p["loss"] for p in whole["curve"]])

    def test_a_learning_rate_that_is_too_large_is_said_to_diverge(self):
        _, one = self.curve("scenarios/small-pipedream.yaml", "--set", "training.problem=quadratic", "--updates", "400",
                            "--set", "training.learning_rate=5")
        self.assertFalse(one["complete"])
        self.assertIn("diverged", one["stopped_because"])


class Checkpoints(Case):
    """What is taken for a checkpoint, and what is left alone."""

    def setUp(self):
        super().setUp()
        self.path, self.checkpoint = self.gpt(updates=6), self.folder / "run.ckpt"
        self.words = ("train", self.path, "--checkpoint", str(self.checkpoint))
        self.curve(*self.words[1:])
        self.whole = self.checkpoint.read_bytes()

    def refused(self, *words):
        before = self.checkpoint.read_bytes()
        done = run(*words)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (words, done.stderr))
        self.assertEqual(self.checkpoint.read_bytes(), before)
        return done.stderr

    def test_one_that_is_there_is_not_replaced_unasked(self):
        said = self.refused(*self.words)
        self.assertIn("is there already; --resume continues that training, --force replaces it", said)
        self.assertEqual(run(*self.words, "--resume").returncode, 0)
        self.assertEqual(self.checkpoint.read_bytes(), self.whole)
        self.assertEqual(run(*self.words, "--force", "--set", "training.seed=7").returncode, 0)
        self.assertNotEqual(self.checkpoint.read_bytes(), self.whole)
        self.assertIn("give one of them", self.refused(*self.words, "--force", "--resume"))
        self.assertIn("needs the --checkpoint", self.refused("train", self.path, "--force"))

    def test_what_is_none_is_always_left_alone(self):
        for content in (b"", b"something else", b"penstock", pathlib.Path(self.path).read_bytes(), b"\x1f\x8b"):
            self.checkpoint.write_bytes(content)
            for more in ((), ("--resume",), ("--force",)):
                self.assertIn("is no checkpoint; it is left alone", self.refused(*self.words, *more))
        text = pathlib.Path(self.path).read_bytes()
        for more in ((), ("--resume",), ("--force",)):
            self.assertEqual(run("train", self.path, "--checkpoint", self.path, *more).returncode, 2)
            self.assertEqual(pathlib.Path(self.path).read_bytes(), text)
        done = run("train", self.path, "--checkpoint", str(self.folder))
        self.assertEqual((done.returncode, "is a folder" in done.stderr), (2, True), done.stderr)

    def test_each_of_several_is_looked_at_before_any_is_trained(self):
        words = ("train", self.path, "--seeds", "2", "--checkpoint", str(self.folder / "s.ckpt"))
        self.assertEqual(run(*words).returncode, 0)
        first, second = sorted(self.folder.glob("s.ckpt.*"))
        first.unlink()
        second.write_text("mine")
        done = run(*words, "--resume")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertFalse(first.exists())
        self.assertEqual(second.read_text(), "mine")

    def test_a_sweep_makes_only_the_runs_that_it_has_not_made(self):
        words = ("train", "--compare", self.path, "--seeds", "2", "--checkpoint", str(self.folder / "s.ckpt"), "--resume")
        small = self.json(*words, "--rates", "0.003,0.001")["scenarios"]
        self.assertEqual([s["learning_rate"] for s in small], [0.003, 0.001])
        self.assertEqual([len(s["runs"]) for s in small], [2, 2])
        made = {p: p.stat().st_mtime_ns for p in self.folder.glob("s.ckpt.*")}
        self.assertEqual(len(made), 4)
        large = self.json(*words, "--rates", "0.001,0.01,0.003")["scenarios"]
        self.assertEqual([s["learning_rate"] for s in large], [0.001, 0.01, 0.003])
        for before, after in ((small[1], large[0]), (small[0], large[2])):
            for old, new in zip(before["runs"], after["runs"]):
                self.assertEqual((old["weights_digest"], old["seconds"]), (new["weights_digest"], new["seconds"]))
        self.assertEqual(len(list(self.folder.glob("s.ckpt.*"))), 6)
        table = run(*words, "--rates", "0.001,0.01").stdout
        self.assertRegex(table, r", rate 0\.001 .*\n.*, rate 0\.01 ")

    def test_rates_that_are_none_are_said(self):
        for text in ("", "0.1,,0.2", "fast", "0", "-1", "0.1,0.1", "nan"):
            done = run("train", self.path, "--rates", text)
            self.assertEqual((done.returncode, "--rates" in done.stderr), (2, True), (text, done.stderr))

    def test_a_damaged_one_is_refused_whichever_bit_it_is(self):
        chosen = random.Random(5)
        header = self.whole.index(b"\0")
        places = [0, 20, 25, 30, 45, 60, header - 5, header, header + 1, len(self.whole) - 1]
        places += [chosen.randrange(len(self.whole)) for _ in range(10)]
        for at in places:
            damaged = bytearray(self.whole)
            damaged[at] ^= 1 << chosen.randrange(8)
            self.checkpoint.write_bytes(damaged)
            self.assertRegex(self.refused(*self.words, "--resume"), "no checkpoint|another version|damaged", at)
        for size in (len(self.whole) - 1, len(self.whole) // 2, header, 60, 30, 22):
            self.checkpoint.write_bytes(self.whole[:size])
            self.assertIn("damaged", self.refused(*self.words, "--resume"), size)
        self.checkpoint.write_bytes(self.whole + b"\0")
        self.assertIn("damaged", self.refused(*self.words, "--resume"))

    def test_an_edited_loss_is_not_printed(self):
        at = self.whole.index(b'"loss": ') + len('"loss": ')
        edited = self.whole[:at] + (b"1" if self.whole[at:at + 1] != b"1" else b"2") + self.whole[at + 1:]
        self.checkpoint.write_bytes(edited)
        self.assertIn("damaged", self.refused(*self.words, "--resume"))

    def test_one_of_another_scenario_or_version(self):
        self.assertIn("of another scenario", self.refused(*self.words, "--resume", "--set", "training.seed=9"))
        self.checkpoint.write_bytes(self.whole.replace(b"checkpoint 4", b"checkpoint 3", 1))
        self.assertIn("of another version of penstock", self.refused(*self.words, "--resume"))

    def test_a_compressed_one(self):
        packed = str(self.folder / "run.ckpt.gz")
        self.curve(self.path, "--checkpoint", packed)
        self.assertIn("is there already", self.refused("train", self.path, "--checkpoint", packed))
        self.curve(self.path, "--checkpoint", packed, "--resume")


class Refusals(Case):
    def refused(self, *words):
        done = run(*words)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (words, done.stderr))
        return done.stderr

    def test_keys_that_do_not_go_together_are_said_at_once(self):
        text = self.refused("train", "scenarios/small-1f1b.yaml", "--set", "training.momentum=0.8", "--set",
                            "training.final_rate=0.2", "--set", "training.rescheduled=3", "--set", "training.data=markov",
                            "--set", "training.held_out=0.2")
        for word in ("sgd has no momentum", "give 'decay'", "'rescheduled' is for schedules", "for a model by shape", "of a text"):
            self.assertIn(word, text)
        self.assertIn("stashing", self.refused("train", "scenarios/small-1f1b.yaml", "--set", "stashing=none"))
        self.assertIn("vertical_sync", self.refused("simulate", "scenarios/small-pipedream.yaml", "--set", "stashing=none",
                                                    "--set", "vertical_sync=true"))

    def test_texts_that_cannot_be_learned(self):
        self.assertIn("does not exist", self.refused("train", self.gpt(data="missing.txt")))
        short = self.folder / "short.txt"
        short.write_text("too short")
        self.assertIn("longer than a sequence", self.refused("train", self.gpt(data=str(short), vocabulary=256)))
        short.write_text("a" * 5000 + "z")
        self.assertIn("vocab_size", self.refused("train", self.gpt(data=str(short), vocabulary=100)))

    def test_options(self):
        path = self.gpt()
        self.assertIn("--checkpoint", self.refused("train", path, "--resume"))
        self.assertIn("--seeds", self.refused("train", path, "--seeds", "0"))
        self.assertIn("updates", self.refused("train", path, "--updates", "none"))
        other = self.folder / "other.ckpt"
        other.write_text("something else")
        self.assertIn("no checkpoint", self.refused("train", path, "--checkpoint", str(other), "--resume"))


if __name__ == "__main__":
    unittest.main()
