# SPDX-License-Identifier: Apache-2.0
"""The seven tasks of docs/tasks.md: each is answered by at most two of the commands that stand there.

What they print is compared with the page by another test; here it is asked whether the answer is in
it. Planning takes seconds. Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE.
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
ENVIRONMENT = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "PENSTOCK_HOME": str(SOURCE),
                            "LC_ALL": "C.UTF-8", "PROGRAM": BINARY}


def sections():
    parts = re.split(r"(?m)^## ", (SOURCE / "docs/tasks.md").read_text())[1:]
    return [(part.split("\n", 1)[0], re.findall(r"(?m)^    \$ (.*)$", part)) for part in parts]


class Tasks(unittest.TestCase):
    def answers(self, number):
        """What the commands of a task print, cut nowhere."""
        title, commands = sections()[number - 1]
        self.assertTrue(title.startswith(f"{number}. "), title)
        self.assertTrue(1 <= len(commands) <= 2, commands)
        out = []
        for command in commands:
            whole = re.sub(r" \| (head|grep) [^|]*$", "", command)
            whole = re.sub(r"(^|\| *)\./penstock\b", r'\1"$PROGRAM"', whole)
            done = subprocess.run(["bash", "-o", "pipefail", "-c", whole], cwd=SOURCE, text=True,
                                  env=ENVIRONMENT, capture_output=True, timeout=600)
            self.assertEqual(done.returncode, 0, whole + done.stderr)
            out.append(done.stdout)
        return out

    def test_there_are_seven(self):
        self.assertEqual(len(sections()), 7)

    def test_1_what_to_run(self):
        (plan,) = self.answers(1)
        self.assertRegex(plan, r"64 GPUs of dgx-h100 \(H100\): 1024 samples of 8192 tokens per update")
        self.assertRegex(plan, r"(?m)^ +1  \S+ +\d+ .* 64 ")
        self.assertRegex(plan, r"(?m)^ +\d=?  (1f1b|model-parallel) .* simplicity ")  # what any framework runs
        self.assertRegex(plan, r"(?m)^pipeline: {.*stages: ")  # a scenario to go on with

    def test_2_why_is_my_script_slow(self):
        (run,) = self.answers(2)
        self.assertRegex(run, r"Why\? +bubble \d+")
        self.assertRegex(run, r"Would help\?  .*: update time -\d+\.\d %\n .*: update time -")

    def test_3_which_schedule_at_my_times(self):
        (table,) = self.answers(3)
        rates = {m[1]: float(m[2]) for m in
                 re.finditer(r"(?m)^schedule=\S+ +([\w-]+) +16 +(?:yes|unknown) +\S+ \S+ +([\d.]+) ", table)}
        self.assertEqual(set(rates), {"1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "v-half"})
        self.assertLess(rates["1f1b"], min(r for name, r in rates.items() if name != "1f1b"))

    def test_4_memory_with_selective_recomputation(self):
        run, table = self.answers(4)
        peaks = {m[1]: float(m[2]) for m in
                 re.finditer(r"recompute=(\w+) .*%  +([\d.]+)", table)}
        self.assertLess(peaks["full"], peaks["selective"])
        self.assertLess(peaks["selective"], peaks["none"])
        self.assertRegex(run, rf"(?m)^0 +{peaks['selective']:.2f} ")  # device 0 is the fullest

    def test_5_my_layer_times(self):
        run, plan = self.answers(5)
        self.assertIn("10 profiled layers", run)
        self.assertIn("1f1b, 4 stages, 16 microbatches", run)
        cut = re.search(r"plan 1: layers per stage ([\d ]+)", plan)
        self.assertEqual(sum(map(int, cut[1].split())), 10)

    def test_6_unlike_nodes(self):
        (plan,) = self.answers(6)
        layers = [int(n) for n in re.search(r"plan 1: layers per stage ([\d ]+)", plan)[1].split()]
        self.assertEqual(sum(layers), 32)
        half = len(layers) // 2  # A100 come first
        self.assertGreater(sum(layers[:half]), sum(layers[half:]))
        self.assertRegex(plan, r"(?m)^the 32 A100-80 alone: .*; plan 1 is \S+ % faster$")

    def test_7_what_cannot_be_said(self):
        text, run = self.answers(7)
        self.assertRegex(text, r"# cannot be modelled:\n#   --optimizer-cpu-offload: ")
        self.assertRegex(run, r"Fits\?      unknown: at most .* without offloading")
        self.assertRegex(run, r"How fast\?  at best \d")


if __name__ == "__main__":
    case = sys.argv.pop(1) if len(sys.argv) > 1 else None
    unittest.main(defaultTest=case)
