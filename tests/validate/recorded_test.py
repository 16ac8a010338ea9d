#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every committed recording of a real run is predicted again: the errors are those that docs/validation.md
publishes, and no prediction has drifted from what was measured."""
import gzip
import json
import os
import pathlib
import subprocess
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
RECORDED = SOURCE / "traces" / "recorded"
# Folder: its largest and its mean error, as published with their reasons in docs/execution.md and
# docs/network-validation.md.
BOUNDS = {"host": (0.125, 0.04), "network": (0.12, 0.01), "sharded": (0.01, 0.005), "experts": (0.05, 0.05)}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=300)


class RecordedRuns(unittest.TestCase):
    def test_predictions_are_as_close_as_published(self):
        self.assertEqual({path.name for path in RECORDED.iterdir() if path.is_dir()}, set(BOUNDS))
        for folder, (largest, mean) in BOUNDS.items():
            with self.subTest(folder):
                done = run(os.environ["PENSTOCK_BINARY"], "validate", str(RECORDED / folder),
                           "--format", "json", "--tolerance", f"{100 * largest}%")
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads(done.stdout)
                self.assertGreaterEqual(result["time"]["n"], {"sharded": 2, "experts": 1}.get(folder, 6))
                self.assertLessEqual(result["time"]["mape"], mean)
                self.assertTrue(all(row["order_equal"] for row in result["rows"]))

    def test_every_recorded_run_is_whole_and_computed_the_right_weights(self):
        for path in sorted(RECORDED.rglob("*.json.gz")):
            with self.subTest(path.name):
                for recorded in json.loads(gzip.decompress(path.read_bytes()))["runs"]:
                    self.assertTrue(recorded["complete"])
                    self.assertIs(recorded["weights_equal"], True)

    def test_the_page_shows_these_errors(self):
        done = run("sh", str(SOURCE / "scripts" / "validation_table.sh"), "--check")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
