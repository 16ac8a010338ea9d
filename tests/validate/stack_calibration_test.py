#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""penstock calibrate --from: numbers of a stack are found again in rows that were made with them; a row that the
others do not explain is judged by a fit that has not seen it; what is written predicts what was printed."""
import csv
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

HEADER = ("# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
          "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n")
SHAPES = [(4, 4 * m * b, b, h, 16, 8, 512, t, 4 // t // p, p)
          for h in (512, 2048) for b in (1, 4) for t, p in ((1, 2), (2, 1), (2, 2), (1, 4)) for m in (4,)]
TRUE = "stack={base: megatron-a100-node, forward_host: 0.5 ms, matrix_efficiency: 40%}"
NUMBERS = ("--stack", "megatron-a100-node", "--numbers", "forward_host,matrix_efficiency")


def run(*arguments):
    return subprocess.run([os.environ["PENSTOCK_BINARY"], *map(str, arguments)], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=120)


class Calibrate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.table = pathlib.Path(folder.name) / "t.csv"
        self.stack = pathlib.Path(folder.name) / "mine.yaml"
        self.write([1000] * len(SHAPES))
        done = run("validate", self.table, "--set", TRUE, "--format", "json")
        self.times = [1e3 * row["predicted_s"] for row in json.loads(done.stdout)["rows"]]
        self.write(self.times)

    def write(self, times):
        rows = io.StringIO()
        csv.writer(rows, lineterminator="\n").writerows([*shape, time] for shape, time in zip(SHAPES, times))
        self.table.write_text(HEADER + rows.getvalue())

    def calibrated(self, *options):
        done = run("calibrate", "--from", self.table, *NUMBERS, *options, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_numbers_are_found_again_and_written(self):
        result = self.calibrated("-o", self.stack)
        found = {one["name"]: one["value"] for one in result["measured"][0]["parameters"]}
        self.assertAlmostEqual(found["forward_host"], 0.5e-3, delta=0.02e-3)
        self.assertAlmostEqual(found["matrix_efficiency"], 0.4, delta=0.01)
        self.assertTrue(all(row["calibrated"] for row in result["rows"]))
        self.assertIn("16 rows of t.csv", self.stack.read_text())
        again = json.loads(run("validate", self.table, "--set", f"stack={self.stack}", "--format", "json").stdout)
        for one, other in zip(result["rows"], again["rows"]):
            self.assertAlmostEqual(one["predicted_s"], other["predicted_s"], delta=1e-3 * one["predicted_s"])

    def test_a_row_is_judged_by_a_fit_that_has_not_seen_it(self):
        self.write([*self.times[:-1], 3 * self.times[-1]])
        rows = self.calibrated("--folds", 16)["rows"]
        self.assertAlmostEqual(rows[-1]["error"], -2 / 3, delta=0.02)
        self.assertFalse(any(row["calibrated"] for row in rows))

    def test_what_is_wrong_is_said(self):
        for options, says in ((("--numbers", "forward_hots"), "did you mean 'forward_host'"),
                              (("--folds", "x"), "--folds: must be an integer"),
                              (("--backend", "host"), "--backend: measures")):
            done = run("calibrate", "--from", self.table, "--stack", "megatron-a100-node", *options)
            self.assertEqual((done.returncode, says in done.stderr), (2, True), done.stderr)
        self.assertIn("needs --stack", run("calibrate", "--from", self.table).stderr)
        self.assertIn("is for a fit", run("calibrate", "--folds", 2).stderr)


if __name__ == "__main__":
    unittest.main()
