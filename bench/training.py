#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long `penstock train` takes for 2,000 updates of a GPT of two million parameters: 8 layers of hidden size 144, 8 sequences of
64 tokens an update, AdamW, 2BW.

  bench/training.py build/cli/penstock [--updates N] [--rounds N] [--before PENSTOCK_RUN]

What is measured is processor time, of N updates less that of none but a few, because a machine that others use, too, says nothing by
its clock. Two runs side by side on two cores take as long as one. With --before, the penstock-run of another build trains by turns
with this one, and the ratio of the two is shown round by round."""
import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile

SCENARIO = """name: two million parameters
model: {num_layers: 8, hidden_size: 144, num_attention_heads: 4, vocab_size: 128, seq_length: 64, precision: fp32}
cluster: {base: p3.16xlarge}
schedule: pipedream-2bw
pipeline: {stages: 8, microbatch_size: 1, microbatches: 8}
training: {data: markov, optimizer: adamw, evaluate_every: 100000, evaluation_microbatches: 1}
"""
FEW = 4


def cpu_s(program, scenario, updates, run):
    env = dict(os.environ, **({"PENSTOCK_RUN": run} if run else {}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, "train", scenario, "--updates", str(updates)], check=True, stdout=subprocess.DEVNULL, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def update_s(program, scenario, updates, run):
    return (cpu_s(program, scenario, FEW + updates, run) - cpu_s(program, scenario, FEW, run)) / updates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", metavar="PENSTOCK_RUN", type=lambda path: str(pathlib.Path(path).resolve()))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scenario = os.path.join(folder, "training.yaml")
        pathlib.Path(scenario).write_text(SCENARIO, encoding="utf-8")
        now, ratios = [], []
        for _ in range(args.rounds):
            now.append(update_s(args.penstock, scenario, args.updates, None))
            print(f"{now[-1] * 1e3:.1f} ms of a core an update", end="")
            if args.before:
                before = update_s(args.penstock, scenario, args.updates, args.before)
                ratios.append(before / now[-1])
                print(f", before {before * 1e3:.1f} ms: {ratios[-1]:.2f}x", end="")
            print(flush=True)
        print(f"2,000 updates: {statistics.median(now) * 2000 / 60:.1f} minutes of a core"
              + (f", {statistics.median(ratios):.2f}x as fast" if ratios else ""))


main()
