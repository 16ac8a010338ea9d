#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One run says the same numbers wherever they are said: in a table, in JSON, in CSV, in a sweep's row, in Python.

Random jobs of shipped models, software and clusters; more of them with PENSTOCK_THOROUGH."""
import csv
import importlib.util
import io
import json
import os
import pathlib
import random
import re
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from command_case import CommandCase

SEEDS = range(24 if os.environ.get("PENSTOCK_THOROUGH") else 6)
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def job(seed):
    """A scenario, and axes of a sweep around it."""
    pick = random.Random(seed).choice
    model = pick(["gpt-1.3b", "gpt-2.2b", "bert-2.2b", "llama-3-8b"])
    stages = pick([1, 2, 4, 8])
    return f"""model: {model}
cluster: {{base: {pick(['dgx-a100', 'dgx-h100', 'dgx-b200'])}, nodes: 8}}
stack: {pick(['megatron', 'nanotron', 'torchtitan', '{name: neutral}'])}
schedule: {pick(['1f1b', 'gpipe', 'pipedream-2bw', 'zb-h1', 'dapple'])}
pipeline: {{stages: {stages}, width: {pick([1, 2, 4])}, microbatches: {stages * pick([1, 2, 4])}, split: balanced}}
batches: 3
""", {"tensor": ["1", pick(["2", "4"])], "microbatch_size": ["1", "2"], "recompute": ["none", pick(["full", "selective"])]}


class SameNumbers(CommandCase):
    COMMAND = ()

    def for_points(self, check):
        """Calls check with each point of each job: its file, its changes, its row of the sweep, what simulate says as JSON."""
        count = 0
        for seed in SEEDS:
            text, axes = job(seed)
            path = self.folder / f"job-{seed}.yaml"
            path.write_text(text)
            over = [word for key, values in axes.items() for word in ("--over", f"{key}={','.join(values)}")]
            rows = [json.loads(line) for line in self.ok("sweep", str(path), *over, "--format", "json").splitlines()]
            self.assertEqual(len(rows), 8)
            for row in rows:
                if row["status"] == "refused":
                    continue
                sets = [f"{key}={row[key]}" for key in axes]
                count += 1
                with self.subTest(seed=seed, set=sets):
                    check(str(path), sets, row, json.loads(self.simulated(str(path), sets, row, "--format", "json")))
        self.assertGreater(count, 2 * len(SEEDS))

    def simulated(self, path, sets, row, *more):
        flags = [word for one in sets for word in ("--set", one)]
        return self.ok("simulate", path, *flags, "--engine", row["engine"], "--reproducible", *more)

    def test_of_a_sweep_s_row_json_and_csv(self):
        def check(path, sets, row, said):
            line = next(csv.DictReader(io.StringIO(self.simulated(path, sets, row, "--format", "csv"))))
            for name, value in row.items():
                inside = name.partition("_")
                found = said.get(name, said.get(inside[0], {}).get(inside[2]) if isinstance(said.get(inside[0]), dict) else None)
                if isinstance(found, list) or name in ("status", "why", "point", "optimistic", "gpus", "devices", "width"):
                    continue
                if name in said["devices"][0] and name not in said:
                    numbers = [device[name] for device in said["devices"] if device[name] is not None]
                    found = max(numbers) if numbers else None
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    self.assertEqual(value, found, name)
                    self.assertEqual(value, float(line[name]), name)
            self.assertEqual(row["status"] == "ok", said["feasible"] is True)
            gpus = sum(len(device["gpus"]) for device in said["devices"])
            self.assertEqual(row["gpus"], gpus)
            self.assertAlmostEqual(said["tokens_per_s"] / (said["tokens_per_s_per_gpu"] * gpus), 1)
            self.assertAlmostEqual(said["tokens_per_s"] * said["iteration_time_s"] / said["samples_per_update"] /
                                   said["seq_length"], 1)
        self.for_points(check)

    def near(self, text, value):
        """A number as the table rounds it: half of its last digit."""
        number, unit = re.fullmatch(r"(\S+)(?: (\S+))?", text).groups()
        decimals = len(number.partition(".")[2])
        self.assertAlmostEqual(float(number.replace(",", "")), value / UNITS.get(unit, 1), delta=0.51 * 10**-decimals)

    def test_of_the_table(self):
        def check(path, sets, row, said):
            table = self.simulated(path, sets, row)
            time, samples, tokens = re.search(r"How fast\?  (\S+ \S+) per .*?, (\S+) samples/s, (\S+) tokens/s/GPU", table).groups()
            self.near(time, said["iteration_time_s"])
            self.near(samples, said["throughput_samples_per_s"])
            self.near(tokens, said["tokens_per_s_per_gpu"])
            self.near(re.search(r"MFU (\S+) %", table).group(1), 100 * said["mfu"])
            self.assertEqual("Fits?      yes" in table, said["feasible"])
            for why in said["infeasible_because"][:3]:
                self.assertIn(why, table)
            error = said["expected_error"]
            sure = " ".join(re.search(r"How sure\?  (.*(?:\n {11}.*)*)", table).group(1).split())
            self.assertRegex(sure, rf"{error['runs']} runs? of {re.escape(error['basis'])}")
            self.assertEqual(sure.startswith("± "), error["near"])
        self.for_points(check)

    @unittest.skipUnless(importlib.util.find_spec("penstock"), "the package penstock is not built")
    def test_of_python(self):
        import penstock

        def check(path, sets, row, said):
            changes = dict(one.split("=", 1) for one in sets)
            result = penstock.simulate(path, engine=row["engine"], **changes).to_dict()
            result.pop("engine_seconds")
            self.assertEqual(result, said)
        self.for_points(check)


if __name__ == "__main__":
    unittest.main()
