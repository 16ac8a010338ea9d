#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""penstock validate TABLE --as kernels: samples of measured kernels are predicted as docs/validation.md says, and a fit
predicts shapes that it has not seen (scripts/device_kernels --check)."""
import csv
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
SHARED = pathlib.Path(os.environ.get("PENSTOCK_SHARED", SOURCE / ".." / "shared"))
SAMPLES = SOURCE / "tests" / "published" / "kernels"
# Mean errors that are aimed at, of samples a little more: each has some 60 rows.
AIMS = {"products": 0.06, "experts": 0.10, "attention": 0.08, "collectives": 0.10, "memory_bound": 0.15}


def run(*arguments):
    return subprocess.run([os.environ["PENSTOCK_BINARY"], *map(str, arguments)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120)


class Kernels(unittest.TestCase):
    def result(self, *arguments):
        done = run("validate", *arguments, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_samples_of_every_table_are_predicted_as_said(self):
        for name, aim in AIMS.items():
            with self.subTest(table=name):
                result = self.result(SAMPLES / f"{name}.csv")
                rows = list(csv.DictReader((SAMPLES / f"{name}.csv").read_text().splitlines()))
                self.assertEqual(len(result["rows"]), len(rows))
                self.assertLess(result["time"]["mape"], aim)
                self.assertEqual([row["measured_s"] for row in result["rows"]],
                                 [float(row["latency_us"]) * 1e-6 for row in rows])
                self.assertEqual(result["time_by_pp"], {})
                by_class = result["measured"][0]["time_by_class"]
                self.assertEqual(sum(errors["n"] for errors in by_class.values()), len(rows))
                self.assertEqual({name.split()[0] for name in by_class}, {row["gpu"] for row in rows})

    def test_a_compressed_table_is_read_by_its_header_and_by_its_form(self):
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "products.csv.gz"
            table.write_bytes(gzip.compress((SAMPLES / "products.csv").read_bytes()))
            plain = self.result(SAMPLES / "products.csv", "--as", "kernels")
            for arguments in ((table,), (table, "--as", "kernels"), (folder,)):
                self.assertEqual(self.result(*arguments)["time"], plain["time"])

    def test_a_table_says_its_errors_by_device_and_type(self):
        done = run("validate", SAMPLES / "products.csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^  h100 fp8_block +3 ")
        self.assertIn("(c) NVIDIA Corporation", done.stdout)

    def test_a_column_that_is_missing_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "t.csv"
            table.write_text("dtype,m,n,k,latency_us\nbf16,64,64,64,3\n")
            done = run("validate", table, "--as", "kernels")
            self.assertEqual(done.returncode, 2)
            self.assertIn("column 'gpu' (or 'device') is missing", done.stderr)

    def test_a_fit_predicts_shapes_that_it_has_not_seen(self):
        folder = SHARED / "data" / "kernels"
        if not folder.is_dir():
            self.skipTest(f"no measured kernels: {folder} is not there (PENSTOCK_SHARED)")
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("no python3-numpy")
        done = subprocess.run([sys.executable, SOURCE / "scripts" / "device_kernels", folder, "--check", "--only", "a100"],
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = dict(re.findall(r"(?m)^(\w+) +all: \d+ rows, mean ([\d.]+),", done.stdout))
        for family, aim in {"products": 6, "experts": 8, "attention": 8, "collectives": 10}.items():
            self.assertLess(float(found[family]), aim, done.stdout)


if __name__ == "__main__":
    unittest.main()
