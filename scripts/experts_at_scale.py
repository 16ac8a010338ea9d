#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what DeepSeek-V3 loses on more GPUs into docs/experts.md, between its two marks.

  scripts/experts_at_scale.py SHARED

Each run of MLPerf Training 6.0 (half A) is predicted as `penstock validate` does, and compared with the smallest run on the same GPUs.
The last row of each kind of GPU is a job whose time is not known here: the largest run on twice as many replicas, with half as many
microbatches. $PENSTOCK is the program (default: ./penstock)."""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "experts.md"
PENSTOCK = os.environ.get("PENSTOCK", str(ROOT / "penstock"))
TABLE = "data/field/mlperf6_A.csv"
BEGIN, END = "<!-- scripts/experts_at_scale.py makes what is below -->", "<!-- end of what it makes -->"
LARGEST = 8192  # GPUs
NODES = r'"nodes":(\d+)'
HEAD = """| GPUs | sequences of each | measured, s per sequence | predicted | measured, of the smallest | predicted, of the smallest | fill, drain | unlike stages | messages \
| gradients | tokens of experts | tensor ranks | multiprocessors |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"""


def run(*arguments, text=None):
    done = subprocess.run([PENSTOCK, *arguments], input=text, text=True, capture_output=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"penstock {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def predicted(scenario, *changes):
    sets = [word for change in changes for word in ("--set", change)]
    return json.loads(run("simulate", "-", "--engine", "auto", "--format", "json", "--advice", "none", *sets, text=scenario))


def number(scenario, key):
    return int(re.search(rf"^  {key}: (\d+)$", scenario, re.M)[1])


def losses(scenario, changes):
    """The time of an update, and the shares of it that GPUs do not compute the model in."""
    result = predicted(scenario, *changes)
    seconds = result["iteration_time_s"]
    free = predicted(scenario, *changes, "pipeline.expert_sms=0")["iteration_time_s"]
    bubble, exposed = result["bubble"], result["communication"]
    shares = [bubble["warmup"] + bubble["drain"], bubble["imbalance"], bubble["transfer_wait"], bubble["gradient_reduction"],
              exposed["ep"]["exposed_fraction"], exposed["tp"]["exposed_fraction"], 1 - free / seconds]
    return seconds, shares


def rows(shared):
    table = shared / TABLE
    runs = [row for row in csv.DictReader(table.open()) if row["id"].startswith("ds-")]
    for gpu in sorted({row["gpu"] for row in runs}, reverse=True):
        mine = sorted((row for row in runs if row["gpu"] == gpu), key=lambda row: int(row["gpus"]))
        first = None
        for row in mine + [None]:
            scenario = run("validate", str(table), "--print", (row or mine[-1])["id"])
            changes, gpus = [], int((row or mine[-1])["gpus"])
            if row is None:
                times = LARGEST // gpus
                changes = [f"pipeline.width={times * number(scenario, 'width')}",
                           f"pipeline.microbatches={number(scenario, 'microbatches') // times}",
                           f"cluster.nodes={times * int(re.search(NODES, scenario)[1])}"]
                gpus = LARGEST
            sequences = int((row or mine[-1])["global_batch"]) / gpus
            seconds, shares = losses(scenario, changes)
            measured = float(row["iteration_s"]) / sequences if row else None
            each = seconds / sequences
            first = first or (measured, each)
            yield [f"{gpus:,} {gpu}", f"{sequences:g}", f"{measured:.3f}" if row else "–", f"{each:.3f}",
                   f"{measured / first[0]:.2f}" if row else "–", f"{each / first[1]:.2f}", *(f"{100 * s:.1f} %" for s in shares)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = [HEAD] + ["| " + " | ".join(row) + " |" for row in rows(pathlib.Path(sys.argv[1]))]
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END + after)


if __name__ == "__main__":
    main()
