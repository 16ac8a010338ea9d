#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds from templates what docs/architecture.md has a row for, and runs it.

`additions_test.py`: a device.
`additions_test.py program`: a schedule, a key and a result field, in one program; a dimension of
parallelism, which all rooms are compiled again for.
"""
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import overlay

ROOT = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BUILD = pathlib.Path(os.environ["PENSTOCK_BINARY"]).parent.parent
PROGRAM = "cli/penstock-first"
SKIPPED = 77  # as meson understands it
SCENARIO = """model: gpt-355m
stack: none
schedule: {schedule}
pipeline: {{stages: 2, microbatches: 4}}
cluster: {{nodes: 1, devices_per_node: 8, intra: 100 GB/s, device: {device}}}
"""


def program_with(*news):
    files = {name: text for new in news for name, text in overlay.changed(new, ROOT).items()}
    folder = BUILD / "tests/structure/overlay" / news[0].replace(" ", "-")
    return overlay.Overlay(overlay.Build(BUILD, ROOT), files, folder).program(PROGRAM)


def why_not():
    if "PENSTOCK_SANITIZED" in os.environ:
        return "a sanitizer's build is not compiled again"
    if not (BUILD / "compile_commands.json").exists() or not (BUILD / PROGRAM).exists():
        return f"nothing was built in {BUILD}"
    return "" if shutil.which("ninja") else "ninja, which knows how the program is made, is missing"


class Run(unittest.TestCase):
    program = None
    home = ROOT

    def penstock(self, *words):
        done = subprocess.run([self.program, *words], text=True, capture_output=True,
                              stdin=subprocess.DEVNULL,
                              env=dict(os.environ, PENSTOCK_HOME=str(self.home)))
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout

    def simulated(self, *words, schedule="1f1b", device="a100-40"):
        with tempfile.TemporaryDirectory() as folder:
            scenario = pathlib.Path(folder) / "scenario.yaml"
            scenario.write_text(SCENARIO.format(schedule=schedule, device=device), encoding="utf-8")
            return self.penstock("simulate", str(scenario), "--engine", "exact", *words)

    def result(self, *words, **keys):
        return json.loads(self.simulated("--format", "json", *words, **keys))


class Device(Run):
    program = BUILD / PROGRAM

    def test_is_listed_and_simulated(self):
        with tempfile.TemporaryDirectory() as folder:
            self.home = pathlib.Path(folder)
            shutil.copytree(ROOT / "models", self.home / "models", ignore=shutil.ignore_patterns("*.[ch]pp"))
            for name, text in overlay.changed("device", ROOT).items():
                (self.home / name).write_text(text, encoding="utf-8")
            self.assertIn("template", self.penstock("list", "devices").lower())
            self.assertIn("(Template)", self.simulated(device="template"))


class ScheduleKeyAndField(Run):
    @classmethod
    def setUpClass(cls):
        cls.program = program_with("schedule", "key", "result field")

    def test_the_schedule_is_listed_and_simulated(self):
        self.assertIn("template", self.penstock("list", "schedules"))
        result = self.result(schedule="template")
        self.assertEqual("template", result["schedule"])
        # Two stages by turns, but for the steps at the end: each computes half of the time.
        self.assertAlmostEqual(0.5, result["bubble_fraction"], delta=0.1)
        self.assertEqual([1, 1], [d["stash_peak"] for d in result["devices"]])

    def test_the_key_is_read_and_the_field_shows_it(self):
        self.assertIn('"template"', self.penstock("init", "--schema"))
        for value, samples in ((1, 4), (2, 8)):
            key = ("--set", f"pipeline.template={value}")
            self.assertEqual(samples, self.result(*key)["template_samples"])
            row = next(csv.DictReader(io.StringIO(self.simulated("--format", "csv", *key))))
            self.assertEqual(str(samples), row["template_samples"])


class Dimension(Run):
    @classmethod
    def setUpClass(cls):
        cls.program = program_with("dimension of parallelism")

    def test_its_ranks_share_the_work_and_exchange(self):
        alone, shared = self.result(), self.result("--set", "pipeline.template=2")
        self.assertEqual((1, 2), (alone["template"], shared["template"]))
        gpus = [sum(len(d["gpus"]) for d in result["devices"]) for result in (alone, shared)]
        self.assertEqual([2, 4], gpus)
        exchanged = shared["communication"]["xp"]
        self.assertEqual(0, alone["communication"]["xp"]["bytes"])
        # Of each of two rings of two, F of four microbatches: a megabyte, sent once by each GPU.
        self.assertEqual(2 * 4 * 2 * 1_000_000, exchanged["bytes"])
        self.assertGreater(exchanged["exposed_s"], 0)
        busy_s = [sum(d["busy_s"] for d in result["devices"]) for result in (alone, shared)]
        self.assertAlmostEqual(busy_s[0] / 2, busy_s[1] - exchanged["exposed_s"], delta=1e-9 * busy_s[0])
        self.assertIn("of 2 GPUs (template 2 x tensor 1)", self.simulated("--set", "pipeline.template=2"))


def main():
    slow = sys.argv[1:] == ["program"]
    if why_not():
        print(why_not())
        return SKIPPED
    loader = unittest.defaultTestLoader
    cases = [ScheduleKeyAndField, Dimension] if slow else [Device]
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)
    return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
