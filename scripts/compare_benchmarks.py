#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is the code as fast as it was? Benchmarks of this tree against those of another commit.

    scripts/compare_benchmarks.py COMMIT [--rounds 5] [--filter REGEX] [BENCHMARK...]

Builds the benchmarks (default: all of bench/ that both have) in a clean clone of COMMIT and here in
build/, and runs both by turns, a process each. Prints the median CPU time of each and their ratio,
old by new: below 1 it has become slower. Packages are there already.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def output(*command, **options):
    """What a command prints; ends here with it if it fails."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **options)
    if done.returncode:
        sys.exit(done.stdout + f"{command[0]} failed")
    return done.stdout


def built(tree, build, names):
    """Builds the benchmarks of a source tree; which of `names` it has."""
    if not (build / "build.ninja").exists():
        output("meson", "setup", build, tree, "-Dcuda=disabled")
    targets = output("ninja", "-C", build, "-t", "targets", "all")
    there = set(re.findall(r"(?m)^bench/(\w+)_bench: ", targets))
    other = {"contention"}  # prints a table of its own
    wanted = sorted(there & set(names) if names else there - other)
    engine = re.findall(r"(?m)^(sim/simgrid/\w+\.so): ", targets)
    output("ninja", "-C", build, *(f"bench/{name}_bench" for name in wanted), *engine)
    return wanted


def times(tree, build, name, options, folder):
    """CPU seconds of each case of a benchmark; its own median where it repeats itself."""
    out = folder / "out.json"
    output(build / f"bench/{name}_bench", f"--benchmark_out={out}", *options, cwd=tree,
           env=os.environ | {"PENSTOCK_HOME": str(tree), "PENSTOCK_SOURCE": str(tree)})
    unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
    runs = [run for run in json.loads(out.read_text())["benchmarks"]
            if not run.get("error_occurred")]
    # What a benchmark times itself is the CPU time of its children.
    key = lambda run: "real_time" if "manual_time" in run["run_name"] else "cpu_time"
    return {run["run_name"]: run[key(run)] * unit[run["time_unit"]] for run in runs
            if run["run_type"] == "iteration" or run.get("aggregate_name") == "median"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARK")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--filter", default=".")
    parser.add_argument("--min-time", default="0.1", help="seconds of each case and run")
    arguments = parser.parse_args()
    options = [f"--benchmark_filter={arguments.filter}",
               f"--benchmark_min_time={arguments.min_time}"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        old = folder / "old"
        output("git", "clone", "-q", "--no-hardlinks", ROOT, old)
        output("git", "-C", old, "checkout", "-q", arguments.commit)
        trees = [(old, old / "build"), (ROOT, ROOT / "build")]
        common = set.intersection(*(set(built(*tree, arguments.benchmarks)) for tree in trees))
        print(f"{'':50} {'old':>10} {'new':>10} {'old/new':>8}")
        for benchmark in sorted(common):
            found = [collections.defaultdict(list) for _ in trees]
            for _ in range(arguments.rounds):
                for tree, all_of in zip(trees, found):
                    for case, seconds in times(*tree, benchmark, options, folder).items():
                        all_of[case].append(seconds)
            for case in [c for c in found[0] if c in found[1]]:
                before, now = (statistics.median(all_of[case]) for all_of in found)
                print(f"{benchmark + ' ' + case:50} {before * 1e3:7.3f} ms {now * 1e3:7.3f} ms "
                      f"{before / now:8.3f}", flush=True)


if __name__ == "__main__":
    main()
