#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What docs/performance.md and docs/plan.md say of our own speed, measured again.

    scripts/speed.py [--build build] [--filter REGEX] [--no-jobs]

Prints the table's rows for the engines (seconds on one core, bench/engines.cpp; --filter takes some of its
benchmarks), then wall seconds and peak memory of the whole commands named below. On a quiet machine: nothing here
notices that others compute, too. Other simulators: scripts/compare_simulators.sh."""
import argparse
import collections
import json
import os
import pathlib
import shlex
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = {"exact": "`exact`", "simgrid_with_memory": "`simgrid`, memory over time included",
           "simgrid_flows": "`simgrid`, every message a flow"}
TO_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
JOBS = [["plan", "gpt3-175b", "--cluster", "{base: dgx-a100, nodes: 128}", "--batch", "1536",
         "--search", "full"],
        ["simulate", "opt-66b-1024"]]


def engines(build, only):
    program = build / "bench" / "engines_bench"
    subprocess.run(["ninja", "-C", build, "bench/engines_bench"], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([program, "--benchmark_format=json", f"--benchmark_filter={only}"], check=True,
                          capture_output=True, text=True)
    rows = collections.defaultdict(dict)
    for run in json.loads(done.stdout)["benchmarks"]:
        name, stages, microbatches = run["name"].split("/")[:3]
        seconds = run["real_time"] * TO_SECONDS[run["time_unit"]]  # SimGrid computes in a process of its own
        rows[int(stages), int(microbatches)].setdefault(name, seconds)
    print("| stages x microbatches |", " | ".join(COLUMNS.values()), "|\n|---|" + "---|" * len(COLUMNS))
    for (stages, microbatches), times in sorted(rows.items()):
        cells = [f"{1e3 * times[c]:.3g} ms" if c in times else "–" for c in COLUMNS]
        print(f"| {stages} x {microbatches} |", " | ".join(cells), "|")
        if "generate_lower_evaluate" in times:
            print(f"(generate, lower, evaluate: {1e3 * times['generate_lower_evaluate']:.3g} ms)")


def jobs(build):
    for arguments in JOBS:
        started = time.perf_counter()
        process = subprocess.Popen([build / "cli" / "penstock", *arguments], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        if status != 0:
            raise SystemExit(f"{arguments} ended with {os.waitstatus_to_exitcode(status)}")
        wall_s = time.perf_counter() - started
        print(f"{wall_s:.3g} s, {used.ru_maxrss / 1024:.0f} MiB: penstock {shlex.join(arguments)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--filter", default=".")
    parser.add_argument("--no-jobs", action="store_true")
    options = parser.parse_args()
    engines(options.build, options.filter)
    if not options.no_jobs:
        jobs(options.build)


main()
