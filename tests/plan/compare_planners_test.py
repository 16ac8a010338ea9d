#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/compare_planners.py: ours is best or equal on published data, and a row where it is not
is said and fails."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
DATA = pathlib.Path(os.environ.get("PENSTOCK_SHARED", SOURCE / ".." / "shared")) / "data"
LAYERS = "layer,time,activation,parameters\na,9 ms,1 KB,1 MB\nb,9 ms,1 KB,1 MB\n"
PUBLISHED = ["pipedream", "2bw", "dapple", "torchgpipe", "uniform"]


def answer(margin):
    """What `penstock plan --compare` says when ours is faster by this than one planner."""
    def row(name, rate, faster):
        return {"planner": name, "plan": "", "throughput_samples_per_s": rate,
                "ours_is_faster_by": faster, "why_not": "" if rate else "no room"}
    published = [row(name, None, None) for name in PUBLISHED[1:]]
    own = [row(name, 1.0, 0) for name in ("full", "full, several versions")]
    return {"gap": 0, "planners": [row("pipedream", 1 / (1 + margin), margin), *published, *own]}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.kept = self.folder / "rows.jsonl"

    def table(self, *words, binary=os.environ["PENSTOCK_BINARY"]):
        """Searches end by their effort, never by the clock."""
        return subprocess.run(
            [sys.executable, SOURCE / "scripts" / "compare_planners.py", *map(str, words),
             "--rows", self.kept, "--time-limit", "1e9", "--effort", "100"],
            capture_output=True, text=True, check=False,
            env=os.environ | {"PENSTOCK_BINARY": str(binary)})

    def that_answers(self, text):
        """A penstock that says this whatever it is asked."""
        said = self.folder / "said"
        said.write_text(text)
        program = self.folder / "penstock"
        program.write_text(f'#!/bin/sh\ncat "{said}"\n')
        program.chmod(0o755)
        return program

    def layers(self):
        path = self.folder / "layers.csv"
        path.write_text(LAYERS)
        return path


class OnPublishedData(Case):
    ROWS = ("PipeDream | alexnet | C", "Sailor | OPT-350 | 16 x V100-16", "vTrain | GPT h 1024, 12")

    def setUp(self):
        super().setUp()
        if not DATA.is_dir():
            self.skipTest(f"no data in {DATA} (PENSTOCK_SHARED)")

    def test_ours_is_best_or_equal_and_what_is_kept_is_not_done_again(self):
        words = [DATA] + [word for row in self.ROWS for word in ("--only", row)]
        done = self.table(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        head, *lines = done.stdout.splitlines()
        self.assertEqual(head.split("\t")[3:8], PUBLISHED)
        self.assertEqual(len(lines), len(self.ROWS))
        for row, line in zip(self.ROWS, lines):
            self.assertIn(row, " | ".join(line.split("\t")))
        for result in map(json.loads, self.kept.read_text().splitlines()):
            ran = [p for p in result["planners"] if p["throughput_samples_per_s"]]
            self.assertGreaterEqual(len(ran), 4, result["key"])
        again = self.table(*words, "--format", "markdown", binary="/bin/false")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("| the best of them | 3 of 3 |", again.stdout)


class Verdicts(Case):
    def test_a_row_that_another_planner_wins_is_said_and_fails(self):
        done = self.table(self.layers(), binary=self.that_answers(json.dumps(answer(-0.1))))
        self.assertEqual(done.returncode, 1)
        self.assertIn("BEATEN", done.stderr)
        self.assertIn("(-10.0 %)", done.stdout)

    def test_equal_but_for_rounding_is_equal(self):
        done = self.table(self.layers(), binary=self.that_answers(json.dumps(answer(-1e-9))))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_row_that_failed_fails_the_table_and_is_tried_again(self):
        failed = self.table(self.layers(), binary="/bin/false")
        self.assertEqual(failed.returncode, 1)
        self.assertEqual(failed.stdout.count("failed: "), 3)
        again = self.table(self.layers(), binary=self.that_answers(json.dumps(answer(0.5))))
        self.assertEqual(again.returncode, 0, again.stderr)

    def test_no_rows_are_an_error(self):
        self.assertIn("no rows", self.table(self.layers(), "--only", "nothing").stderr)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, verbosity=2).result.wasSuccessful() else 1)
