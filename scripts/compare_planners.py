#!/usr/bin/env python3
"""A table of throughput by planner: every profile of a folder on the clusters of PipeDream's paper,
all plans simulated alike (`penstock plan --compare`, docs/plan.md).

    scripts/compare_planners.py profiles/ > planners.tsv
    scripts/compare_planners.py vgg16/graph.txt --cluster A,B --time-limit 20

A minibatch has as many samples as the name of the profile says (pbs-N, DAPPLE's), else
--profile-batch. Columns: simulated samples/s, and by how much our plan is faster; a planner without
a plan that runs has its reason in the last column. Exit 1 when any planner's plan beats ours."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

# GPUs of a server and between servers, per direction: Narayanan et al., SOSP'19, table 2, with the
# bandwidths of its released optimizer's examples.
CLUSTERS = {"A": ["4x12GB/s", "4x1.25GB/s"], "B": ["8x30GB/s", "2x3.125GB/s"], "C": ["4x5GB/s"]}
ROUNDING = 1e-6


def profiles_of(path):
    path = pathlib.Path(path)
    return [path] if path.is_file() else sorted(path.rglob("*.txt"))


def compare(binary, profile, cluster, options):
    named = re.search(r"pbs-(\d+)", profile.name)
    batch = named.group(1) if named else str(options.profile_batch)
    levels = [word for level in CLUSTERS[cluster] for word in ("--level", level)]
    words = [binary, "plan", str(profile), *levels, "--profile-batch", batch, "--memory",
             options.memory, "--compare", "--time-limit", str(options.time_limit), "--top", "1",
             "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    return json.loads(done.stdout)["planners"]


def rate(value):
    return "-" if value is None else f"{value:.4g}"


def cell(planner):
    faster = planner["ours_is_faster_by"]
    if faster is None or planner["planner"].startswith("full"):
        return rate(planner["throughput_samples_per_s"])
    return f"{rate(planner['throughput_samples_per_s'])} (+{faster * 100:.1f} %)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("profiles", nargs="+", help="files, or folders of .txt files")
    parser.add_argument("--cluster", default="A,B,C", help="of A, B, C; default all")
    parser.add_argument("--memory", default="16GB", help="of a device; default 16GB")
    parser.add_argument("--profile-batch", type=int, default=64)
    parser.add_argument("--time-limit", type=float, default=10, help="seconds of one search")
    options = parser.parse_args()
    binary = os.environ.get("PENSTOCK_BINARY", "penstock")
    beaten = False
    head = None
    for profile in [p for path in options.profiles for p in profiles_of(path)]:
        name = profile.stem if profile.stem != "graph" else profile.parent.name
        for cluster in options.cluster.split(","):
            planners = compare(binary, profile, cluster, options)
            if head is None:
                head = [p["planner"] for p in planners]
                print("\t".join(["profile", "cluster", *head, "no plan"]))
            why = "; ".join(f"{p['planner']}: {p['why_not']}" for p in planners if p["why_not"])
            print("\t".join([name, cluster, *map(cell, planners), why]), flush=True)
            beaten |= any((p["ours_is_faster_by"] or 0) < -ROUNDING for p in planners)
    return 1 if beaten else 0


if __name__ == "__main__":
    sys.exit(main())
