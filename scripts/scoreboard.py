#!/usr/bin/python3
"""Predicts every published data set and writes what came of it: scoreboard.md and scoreboard.html.

  scripts/scoreboard.py SHARED FOLDER     (scripts/scoreboard.sh says it shorter)

SETS says of each set its file, its form for `penstock validate`, and what the model knew of it. Two baselines are
made here from the same rows: constant MFU with the bubble formula, whose one number is fitted on the set, and `simulate`
with the neutral stack, which knows the device's curve of whole layers and nothing of the software. Needs the
program alone."""
import csv
import html
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PENSTOCK = os.environ.get("PENSTOCK", str(ROOT / "penstock"))
NEUTRAL = "stack={name: neutral}"
PEAKS = {"h100": 989.4e12, "a100-80": 312e12, "v100-32": 125e12, "v100-16": 125e12, "b200": 2250e12}


def column(name, *values):
    return lambda row: row[name] in values


def tensor(least, most):
    return lambda row: least <= int(row["tp"]) <= most


def deep(row):
    return int(row["pp"] or 1) > 1


# Title, file under SHARED (or the project's own), form, what was known to the model, classes, files of classes by id, rows left out and why.
SETS = [
    {"title": "nanotron, H100 (Ultra-Scale Playbook), class C", "file": "data/field/nanotron_A.csv", "form": "runs",
     "known": "13 + 5 numbers of the stack, fitted on these rows; each half by a fit on the other 4.3 % (median)",
     "ids": ("data/field/nanotron_classes_A.csv", "C"),
     "left_out": "classes T, P, N, X: host-bound tensor parallelism, an old point-to-point code, 64 nodes, excluded by its author",
     "classes": [("tensor <= 8, depth > 1", lambda row: tensor(1, 8)(row) and deep(row)), ("tensor <= 8", tensor(1, 8)),
                 ("tensor 16", tensor(16, 16)), ("tensor 32", tensor(32, 32))]},
    {"title": "nanotron, H100, all classes", "file": "data/field/nanotron_A.csv", "form": "runs",
     "known": "the same; the other classes: nothing", "left_out": "",
     "classes": []},
    {"title": "nanotron, H100, finished or not", "file": "data/field/nanotron_finished_A.csv", "form": "runs",
     "known": "nothing of whether they finished", "left_out": "", "classes": []},
    {"title": "bigscience, A100", "file": "data/field/bigscience_A.csv", "form": "runs",
     "known": "8 numbers of the stack, fitted on 62 of these rows; in ten folds 3.0 % (median)",
     "only": column("gpu", "a100-80"), "left_out": "rows on V100, which are a set of their own",
     "classes": [("heads of a multiple of 8", lambda row: int(row["hidden"]) // int(row["heads"]) % 8 == 0),
                 ("other heads", lambda row: int(row["hidden"]) // int(row["heads"]) % 8 != 0)]},
    {"title": "bigscience, V100", "file": "data/field/bigscience_A.csv", "form": "runs",
     "known": "the stack fitted on A100; nothing of V100", "only": column("gpu", "v100-32", "v100-16"), "left_out": "",
     "classes": []},
    {"title": "SimuMax, dense Llama-3 layers on 8 B200", "file": "data/field/simumax_b200.csv", "form": "runs",
     "known": "measured products and attention; 9 + 4 numbers of the stack, fitted on these rows",
     "left_out": "MoE, context-parallel and interleaved rows: not in the table",
     "classes": [("tensor 8", tensor(8, 8)), ("depth 2", deep)]},
    {"title": "Selene, 22 billion to 1 trillion parameters", "own": "tests/published/selene.csv", "form": "runs",
     "known": "2 numbers of the stack, each row by a fit on the others", "left_out": "", "classes": [],
     "folds": ["megatron-2022", "matrix_efficiency,attention_efficiency"]},
    {"title": "Zero Bubble, 1.5 to 28.3 billion parameters on A100", "own": "tests/published/zero_bubble.csv", "form": "runs",
     "known": "no stack; 3 points of the A100's curve are of this paper's layers",
     "left_out": "interleaved 1F1B, of a number of chunks that is not said",
     "classes": [("1F1B", column("schedule", "1f1b")), ("ZB-1p", column("schedule", "zb-1p")),
                 ("ZB-2p", column("schedule", "zb-2p"))]},
    {"title": "vTrain, one node of A100", "file": "data/measured/vtrain/single.csv", "form": "vtrain",
     "known": "11 numbers of the stack, 10-fold cross-validation", "left_out": "", "classes": [],
     "folds": ["megatron-a100-node", "matrix_efficiency,attention_efficiency,misaligned_head,logits_traffic,forward_host,"
               "backward_host,tensor_host,link_efficiency,node_latency,optimizer_traffic,iteration_overhead"]},
    {"title": "vTrain, 64 to 512 A100", "file": "data/measured/vtrain/multi.csv", "form": "vtrain",
     "known": "one node's stack, and 5 numbers, 10-fold cross-validation", "left_out": "", "classes": [],
     "folds": ["megatron-a100-nodes",
               "matrix_efficiency,attention_efficiency,tensor_host,optimizer_traffic,iteration_overhead"]},
    {"title": "Sailor, OPT-350 on GH200", "file": "data/measured/sailor/OPT-350", "form": "sailor",
     "known": "measured layers; 3 + 1 shared numbers, each row by a fit on the others", "left_out": "", "classes": [],
     "folds": ["deepspeed-profiled", "link_latency,iteration_overhead,speed_spread"], "memory": "reserved", "parts": "15"},
]

# What others state of their own predictions, and of which rows.
OTHERS = """| tool | rows | error of time | error of memory |
|---|---|---|---|
| vTrain (MICRO'24) | its own, one node / many | 8.4 % / 14.7 % mean | – |
| Calculon | Selene's 8 points | 3.7 % mean, 8.9 % largest | 2.1 % mean (activations) |
| Calculon, run on vTrain's rows | one node / many | 38.9 % / 11.1 % mean | – |
| Sailor (SOSP'25) | its own, GH200 | 8.9 to 9.4 % mean | 5.9 to 7.4 % mean |
| SimuMax | its own, B200, 43 rows | 5.6 % mean, 13.5 % largest | 0.5 % mean, 1.4 % largest |
| Primus (AMD) | its own | up to 10 % | – |
"""


def answer(table, *command):
    done = subprocess.run([PENSTOCK, *command, "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{table}: {done.stderr}")
    return json.loads(done.stdout)


def validated(table, form, *options):
    return answer(table, "validate", str(table), "--as", form, *options)


def in_folds(table, stack, numbers, *options):
    """Each row as a fit on the other folds predicts it; of a few rows, each is a fold of its own."""
    return answer(table, "calibrate", "--from", str(table), "--stack", stack, "--numbers", numbers, *options)["rows"]


def judged(path, one):
    """The rows of a set that is not a table of ours, or whose stack is fitted in folds."""
    if "folds" not in one:
        return validated(path, one["form"])["rows"]
    rows = in_folds(path, *one["folds"], "--folds", one.get("parts", "10"))
    if "memory" in one:
        memory = in_folds(path, one["folds"][0], one["memory"], "--memory", "--folds", one.get("parts", "10"))
        rows = [row | {"memory_error": other["memory_error"]} for row, other in zip(rows, memory)]
    return rows


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def flops(row):
    """Of an iteration, all GPUs: 6 and, recomputed, 8 per parameter and token, and attention."""
    layers, hidden, seq = int(row["layers"]), int(row["hidden"]), int(row["seq"])
    kv = hidden // int(row["heads"]) * int(row.get("kv_heads") or row["heads"])
    wide = int(row.get("intermediate") or 4 * hidden)
    matrices = 3 if row.get("family", "llama") == "llama" else 2
    layer = 2 * hidden * (hidden + kv) + matrices * hidden * wide
    tokens = seq * int(row["microbatch"]) * int(row["microbatches"]) * int(row["dp"])
    passes = 4 if row.get("recompute") == "full" else 3
    return tokens * (passes * layers * (2 * layer + 4 * seq * hidden) + 6 * hidden * int(row["vocab"]))


def constant_mfu(rows):
    """Predicted times of rows that have one, at the share of peak that suits their median best."""
    ideal = []
    for row in rows:
        stages, microbatches = int(row["pp"] or 1), int(row["microbatches"])
        gpus = int(row["dp"]) * int(row["tp"]) * stages
        ideal.append(flops(row) / gpus / PEAKS[row["gpu"]] * (microbatches + stages - 1) / microbatches)
    share = statistics.median(best / float(row["iteration_s"]) for best, row in zip(ideal, rows))
    return [best / share / float(row["iteration_s"]) - 1 for best, row in zip(ideal, rows)]


def figures(errors):
    if not errors:
        return "– | – | – | – | –"
    off = sorted(abs(error) for error in errors)
    tenth = off[min(len(off) - 1, int(0.9 * len(off)))]
    return " | ".join(f"{100 * value:.1f} %" for value in (statistics.mean(off), statistics.median(off), tenth, off[-1])) + \
        f" | {100 * statistics.mean(errors):+.1f} %"


def errors_of(rows, key):
    return [row[key] for row in rows if row.get(key) is not None]


class Board:
    def __init__(self, shared):
        self.shared, self.lines, self.memory, self.baselines, self.notes, self.plots = shared, [], [], [], [], []

    def add_lines(self, title, known, rows):
        times, memory = errors_of(rows, "error"), errors_of(rows, "memory_error")
        if times:
            self.lines.append(f"| {title} | {len(times)} | {known} | {figures(times)} |")
        if memory:
            self.memory.append(f"| {title} | {len(memory)} | {figures(memory)} |")

    def add(self, one):
        path = ROOT / one["own"] if "own" in one else self.shared / one["file"]
        if not path.exists():
            self.notes.append(f"* {one['title']}: the file is not there.")
            return
        if "folds" in one or one["form"] != "runs":
            rows = judged(path, one)
            self.add_lines(one["title"], one["known"], rows)
            self.add_lines("– depth > 1", "", [row for row in rows if row["depth"] > 1])
            self.plots.append((one["title"], rows))
            return
        rows = [row for row in rows_of(path) if one.get("only", lambda row: True)(row)]
        if "ids" in one:
            file, name = one["ids"]
            chosen = {row["id"] for row in rows_of(self.shared / file) if row["class"] == name}
            rows = [row for row in rows if row["id"] in chosen]
        self.add_runs(one, rows)

    def add_runs(self, one, rows):
        by_id = {row["id"]: row for row in rows}
        with tempfile.TemporaryDirectory() as place:
            table = pathlib.Path(place) / "rows.csv"
            write_rows(table, rows)
            result = validated(table, "runs")
            neutral = validated(table, "runs", "--set", NEUTRAL)
        predicted = result["rows"]
        self.add_lines(one["title"], one["known"], predicted)
        for name, chosen in one["classes"]:
            self.add_lines(f"– {name}", "", [row for row in predicted if chosen(by_id[row["name"]])])
        report = result["measured"][0]
        if report["finished"]["n"]:
            f = report["finished"]
            stopped = f["n"] - f["finished"]
            self.notes.append(f"* {one['title']}: {100 * f['right'] / f['n']:.1f} % of {f['n']} rows right; false alarms "
                              f"{100 * f['false_alarms'] / f['finished']:.1f} % of {f['finished']} that finished; missed "
                              f"{100 * f['missed'] / stopped:.1f} % of {stopped} that did not, whose cause nobody recorded.")
        for note in report["notes"]:
            self.notes.append(f"* {one['title']}: {note}")
        if one["left_out"]:
            self.notes.append(f"* {one['title']}: left out are {one['left_out']}.")
        timed = [row for row in rows if row.get("iteration_s")]
        if timed:
            self.baselines.append(f"| {one['title']} | constant MFU and bubble | {figures(constant_mfu(timed))} |")
            self.baselines.append(f"| | simulated, neutral stack | {figures(errors_of(neutral['rows'], 'error'))} |")
            self.plots.append((one["title"], predicted))

    def markdown(self):
        head = "rows | mean | median | p90 | largest | bias |"
        return "\n".join([
            "# Scoreboard", "",
            "Made by `scripts/scoreboard.sh` from the published rows that `docs/validation.md` names: halves A, every row as a",
            "scenario that `simulate` predicts (`penstock validate FILE --print N` shows it); where rows are cross-validated, the",
            "stack is fitted by `penstock calibrate --from FILE --folds 10`. Errors are predicted / measured - 1.",
            "`tests/validate/scoreboard_test.py` predicts a sample of it again.", "",
            "## Time of an iteration", "",
            "| data | rows | known to the model | mean | median | p90 | largest | bias |", "|---|--:|---|--:|--:|--:|--:|--:|",
            *self.lines, "", "## Peak memory", "", f"| data | {head}", "|---|--:|--:|--:|--:|--:|--:|", *self.memory, "",
            "## Baselines on the same rows", "", "| data | baseline | mean | median | p90 | largest | bias |",
            "|---|---|--:|--:|--:|--:|--:|", *self.baselines, "",
            "Constant MFU: the FLOPs of an iteration at one share of the peak, fitted on the set, times (m + p - 1) / m.",
            "Neutral stack: what `simulate` says of a device's curve of whole layers, knowing nothing of the software.", "",
            "## What others state", "", OTHERS, "## Rows and notes", "", *self.notes, ""])

    def page(self):
        plots = "".join(scatter(title, rows) for title, rows in self.plots)
        return ("<!doctype html><meta charset=utf-8><title>penstock: predicted against measured</title>"
                "<style>body{font:14px sans-serif;margin:2em}figure{display:inline-block;margin:1em}svg{background:#fff;"
                "border:1px solid #ccc}</style><h1>Predicted against measured</h1><p>Time of an iteration, both axes in "
                "seconds, logarithmic; the line is where both agree, the dashed ones are 10 % off.</p>" + plots)


def scatter(title, rows):
    points = [(row["measured_s"], row["predicted_s"], row["name"]) for row in rows
              if row.get("measured_s") and row.get("predicted_s")]
    low = math.log(min(min(m, p) for m, p, _ in points)) - 0.1
    high = math.log(max(max(m, p) for m, p, _ in points)) + 0.1
    size = 320

    def at(value):
        return size * (math.log(value) - low) / (high - low)

    dots = "".join(f'<circle cx="{at(m):.1f}" cy="{size - at(p):.1f}" r="2.5" fill="#1565c0" fill-opacity=".5">'
                   f"<title>{html.escape(name)}: {p:.4g} s predicted, {m:.4g} s measured</title></circle>"
                   for m, p, name in points)
    lines = "".join(f'<line x1="0" y1="{size - size * shift / (high - low):.1f}" x2="{size}" '
                    f'y2="{-size * shift / (high - low):.1f}" stroke="#888"{dash}/>'
                    for shift, dash in ((0, ""), (math.log(1.1), ' stroke-dasharray="3"'),
                                        (math.log(0.9), ' stroke-dasharray="3"')))
    return (f'<figure><figcaption>{html.escape(title)}: {len(points)} rows, {math.exp(low):.3g} to {math.exp(high):.3g} s'
            f'</figcaption><svg width="{size}" height="{size}" role="img" aria-label="predicted over measured">'
            f"{lines}{dots}</svg></figure>")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    board = Board(pathlib.Path(sys.argv[1]))
    for one in SETS:
        board.add(one)
    folder = pathlib.Path(sys.argv[2])
    (folder / "scoreboard.md").write_text(board.markdown(), encoding="utf-8")
    page = (folder if folder.resolve() != ROOT / "docs" else pathlib.Path(tempfile.gettempdir())) / "scoreboard.html"
    page.write_text(board.page(), encoding="utf-8")
    print(f"{folder / 'scoreboard.md'}, {page}")


if __name__ == "__main__":
    main()
