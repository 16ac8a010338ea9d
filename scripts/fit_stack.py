#!/usr/bin/python3
"""Fits the numbers of a training stack to a table of measured runs, through the model that `simulate` uses.

  scripts/fit_stack.py RUNS.csv STACK [--ids CSV --class C] [--half SEED] [--memory] [--fixed KEYS] [-o FILE]

RUNS.csv  as `penstock validate --as runs` takes it
STACK     where to begin: a file of models/stacks, or its name there
--ids     a table with columns `id` and `class`: only rows of the class given by --class
--half    fits on a random half of the rows and says how the other half, which it has not seen, is predicted
--memory  fits what is kept and held instead of the times
--fixed   keys of the stack, with commas between, that other measurements settle: they stay as they are
-o        the stack with its new numbers, as YAML

Each number is moved until the sum over the rows of log(predicted / measured), squared where it is small and
counted singly beyond 5 % (scipy's soft_l1), is least: no row and no schedule has a number of its own. Beside
each number stands its spread, the standard deviation that the fit's own residuals give it: without limit for
numbers that these rows tell only together (forward and backward launches; attention and traffic where all
sequences are equally long). An evaluation is one `penstock validate` of all rows, a fit ten seconds to minutes. Needs numpy, scipy, yaml. The program is
$PENSTOCK, or ./penstock.
"""
import argparse
import csv
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy
import scipy.optimize
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PENSTOCK = os.environ.get("PENSTOCK", str(ROOT / "penstock"))
SECONDS = {"s": 1, "ms": 1e-3, "us": 1e-6}
TIME = ("matrix_efficiency", "attention_efficiency", "misaligned_attention", "misaligned_head", "operand_traffic", "forward_traffic",
        "backward_traffic", "accumulation", "logits_traffic", "forward_host", "backward_host", "tensor_host",
        "link_efficiency", "link_latency", "node_latency",
        "optimizer_traffic", "iteration_overhead")
MEMORY = ("gradient_bytes", "optimizer_bytes", "kept_per_hidden", "kept_per_column", "logits_kept")
TIMES = ("forward_host", "backward_host", "tensor_host", "link_latency", "node_latency", "iteration_overhead")
SHARES = ("matrix_efficiency", "attention_efficiency", "misaligned_attention", "misaligned_head", "link_efficiency")


def number(text):
    """59.9%, 1.06 ms or 12 as a number without a unit; None: it is none."""
    match = re.fullmatch(r"([0-9.eE+-]+) *(%|s|ms|us|)", str(text))
    if not match:
        return None
    return float(match[1]) * (0.01 if match[2] == "%" else SECONDS.get(match[2], 1))


def written(key, value):
    if key in SHARES:
        return f"{100 * value:.3g}%"
    return f"{1e3 * value:.3g} ms" if key in TIMES else f"{value:.3g}"


def exact(key, value):
    return f"{value!r} s" if key in TIMES else value


def free(key, value):
    """A number without limits in place of a share (0 to 1) or of one above 0."""
    return numpy.log(value / (1 - value)) if key in SHARES else numpy.log(value)


def bound(key, value):
    """Its inverse."""
    return float(1 / (1 + numpy.exp(-value)) if key in SHARES else numpy.exp(value))


def rows_of(arguments):
    with open(arguments.runs, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if arguments.ids:
        with open(arguments.ids, newline="", encoding="utf-8") as file:
            chosen = {row["id"] for row in csv.DictReader(file) if row["class"] == arguments.of_class}
        rows = [row for row in rows if row["id"] in chosen]
    if not rows:
        sys.exit("fit_stack.py: no row is left")
    return rows


class Model:
    """log(predicted / measured) of some rows under a stack."""

    def __init__(self, folder, name, rows, memory):
        self.table, self.stack = folder / f"{name}.csv", folder / f"{name}.yaml"
        self.fields = ("predicted_bytes", "measured_bytes") if memory else ("predicted_s", "measured_s")
        with open(self.table, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)

    def errors(self, stack):
        self.stack.write_text(yaml.safe_dump(stack), encoding="utf-8")
        done = subprocess.run([PENSTOCK, "validate", str(self.table), "--as", "runs", "--format", "json", "--set",
                               f"stack={self.stack}"], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            sys.exit(done.stderr)
        predicted, measured = self.fields
        return numpy.array([numpy.log(row[predicted] / row[measured]) for row in json.loads(done.stdout)["rows"]
                            if row.get(predicted) and row.get(measured)])


def summary(errors):
    off = numpy.abs(numpy.exp(errors) - 1)
    return f"median {100 * numpy.median(off):.1f} %, mean {100 * off.mean():.1f} % of {off.size} rows"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs")
    parser.add_argument("stack")
    parser.add_argument("--ids")
    parser.add_argument("--class", dest="of_class", default="C")
    parser.add_argument("--half", type=int)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--fixed", default="")
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    path = pathlib.Path(arguments.stack)
    if not path.exists():
        path = ROOT / f"models/stacks/{arguments.stack}.yaml"
    start = yaml.safe_load(path.read_text(encoding="utf-8"))
    fixed = arguments.fixed.split(",")
    keys = [key for key in (MEMORY if arguments.memory else TIME) if number(start.get(key)) and key not in fixed]
    rows, unseen = rows_of(arguments), []
    if arguments.half is not None:
        random.Random(arguments.half).shuffle(rows)
        rows, unseen = rows[:len(rows) // 2], rows[len(rows) // 2:]

    def stack_with(found):
        return start | {key: exact(key, bound(key, value)) for key, value in zip(keys, found)}

    with tempfile.TemporaryDirectory() as place:
        model = Model(pathlib.Path(place), "fitted", rows, arguments.memory)

        def errors(numbers):
            found = model.errors(stack_with(numbers))
            print(f"{summary(found)}", file=sys.stderr)
            return found

        begin = numpy.array([free(key, number(start[key])) for key in keys])
        print(f"before: {summary(model.errors(stack_with(begin)))}")
        # Steps of a Jacobian relative to 1, as a value near 0 says nothing of how far to go.
        fit = scipy.optimize.least_squares(errors, begin, loss="soft_l1", f_scale=0.05,
                                           diff_step=0.02 / numpy.maximum(numpy.abs(begin), 1e-3),
                                           bounds=(begin - 1, begin + 1), xtol=1e-3, ftol=1e-3, max_nfev=12)
        print(f"fitted: {summary(fit.fun)}")
        if unseen:
            other = Model(pathlib.Path(place), "unseen", unseen, arguments.memory)
            print(f"unseen: {summary(other.errors(stack_with(fit.x)))}")
    spread = numpy.sqrt(numpy.diag(numpy.linalg.pinv(fit.jac.T @ fit.jac)) * numpy.mean(fit.fun**2))
    for key, value, deviation in zip(keys, fit.x, spread):
        print(f"{key}: {written(key, bound(key, value))}  # +- {100 * deviation:.0f} %; was {start[key]}")
    if arguments.output:
        made = start | {key: written(key, bound(key, value)) for key, value in zip(keys, fit.x)}
        pathlib.Path(arguments.output).write_text(yaml.safe_dump(made, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main()
