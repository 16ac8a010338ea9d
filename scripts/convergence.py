#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/convergence.md: what stale weights cost, a question per section.

    scripts/convergence.py --text jargon.txt [--jobs 2] [--section NAME]   # makes the runs that are missing, then the page
    scripts/convergence.py                                                 # the page alone, from docs/convergence/runs.csv
    scripts/convergence.py --repeat N    # makes N of the cheapest runs again and the page, and compares both; changes nothing

Every run is a row of runs.csv as soon as it has ended, so that what is interrupted goes on where it was. Each cell of a
table (a rule in a setting) first walks over learning rates, each twice the one before, with seeds that are not
used again, until the best has a worse one on either side; then it is trained with seeds 1 to 8. Differences are those of
the same seed, so of the same first weights and data; their intervals are Student's, of 95 %.

jargon.txt: the Jargon File, which is in the public domain, as Debian's package dict-jargon ships it, with a question mark for
each character that is not ASCII (apt-get download dict-jargon; dpkg -x dict-jargon*.deb x; zcat
x/usr/share/dictd/jargon.dict.dz | LC_ALL=C.UTF-8 sed 's/[^\\x00-\\x7F]/?/g' > jargon.txt). Needs ./penstock, or
$PENSTOCK_BINARY."""
import argparse
import concurrent.futures
import csv
import dataclasses
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/convergence"
RUNS = FOLDER / "runs.csv"
BINARY = os.environ.get("PENSTOCK_BINARY", str(ROOT / "penstock"))
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "docs/figures"))
import svg  # noqa: E402

SEARCH_SEEDS = (101, 102, 103)
FIRST_RATE = {"sgd": 0.4, "momentum": 0.1}
# Student's t of 97.5 %, by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 23: 2.069}


# Runs ---------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Cell:
    """A rule in a setting: the scenario docs/convergence/BASE.yaml with these keys changed."""
    base: str
    updates: int
    keys: tuple = ()
    seeds: int = 8
    fixed: float = 0  # a learning rate that is not searched

    def run(self, rate, seed):
        return (self.base, " ".join(f"{k}={v}" for k, v in self.keys), str(self.updates), f"{rate:g}", str(seed))


def cell(base, updates, seeds=8, fixed=0, **keys):
    """Keys of `pipeline` and `training` by their last name."""
    full = {"schedule": "schedule", "layers": "model.num_layers", "hidden": "model.hidden_size", "perturbations": "perturbations"}
    full |= {k: f"training.{k}" for k in ("optimizer", "predicted", "discounted", "error_feedback", "rescheduled", "problem")}
    return Cell(base, updates, tuple(sorted((full.get(k, f"pipeline.{k}"), str(v)) for k, v in keys.items())), seeds, fixed)


def search_seeds(one):
    """Those that a walk over rates trains: one on the Markov chain, whose seeds hardly differ, and of the corrections on text, whose
    walks take minutes."""
    plain = one.base == "text" and not {k for k, _ in one.keys} & {"training.error_feedback", "training.predicted"} \
        and dict(one.keys).get("training.optimizer", "muon") == "muon"
    return SEARCH_SEEDS if one.base == "small" or plain else SEARCH_SEEDS[:1]


class Facts:
    """The losses of runs.csv, by run; `text` is the file to train on, None: no run is made."""

    def __init__(self, text):
        self.text, self.lock, self.losses = text, threading.Lock(), {}
        if RUNS.exists():
            with RUNS.open(newline="") as file:
                self.losses = {tuple(row[:5]): float(row[5]) for row in list(csv.reader(file))[1:]}

    def loss(self, run):
        """Held-out at the end; infinite where the run diverged, None where it is not made."""
        if run not in self.losses and self.text:
            loss = trained(run, self.text)
            with self.lock:
                self.losses[run] = loss
                with RUNS.open("a", newline="") as file:
                    if file.tell() == 0:
                        csv.writer(file, lineterminator="\n").writerow(["scenario", "keys", "updates", "learning_rate", "seed", "held_out_loss"])
                    csv.writer(file, lineterminator="\n").writerow([*run, f"{loss:.6f}"])
        return self.losses.get(run)

    def rate(self, one):
        """The best learning rate of a cell by the walk; None where runs are missing."""
        if one.fixed:
            return one.fixed
        optimizer = dict(one.keys).get("training.optimizer", "adamw")
        start = FIRST_RATE.get(optimizer, 0.002)
        tried = {}

        def at(step):
            if step not in tried:
                found = [self.loss(one.run(start * 2.0 ** step, seed)) for seed in search_seeds(one)]
                tried[step] = math.nan if None in found else statistics.fmean(found)
            return tried[step]
        best = 0
        while abs(best) < 8:
            around = {step: at(step) for step in (best, best - 1, best + 1)}
            if any(map(math.isnan, around.values())):
                return None
            # All diverge: smaller ones next.
            least = min(around, key=around.get) if math.isfinite(min(around.values())) else best - 1
            if least == best:
                break
            best = least
        return start * 2.0 ** best

    def ends(self, one):
        """The losses of a cell's seeds; None where one is missing."""
        rate = self.rate(one)
        if rate is None:
            return None
        found = [self.loss(one.run(rate, seed)) for seed in range(1, one.seeds + 1)]
        return None if None in found else found


def trained(run, text):
    base, keys, updates, rate, seed = run
    words = [BINARY, "train", str(FOLDER / f"{base}.yaml"), "--updates", updates, "--format", "json"]
    for setting in [*keys.split(), f"training.learning_rate={rate}", f"training.seed={seed}",
                    *([f"training.data={text}"] if base in ("text", "small") else [])]:
        words += ["--set", setting]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT,
                          env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PENSTOCK_HOME": str(ROOT)})
    (result,) = json.loads(done.stdout)["scenarios"][0]["runs"]
    if not result["complete"]:
        return math.inf
    if base == "linear":  # nothing is held out, and each update has new samples
        last = [point["loss"] for point in result["curve"][-100:]]
        return sum(last) / len(last)
    return result["curve"][-1]["evaluation_loss"]


# The experiments ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of a table: a cell against another one."""
    name: str
    reference: Cell
    tried: Cell


TWO_BW = {"schedule": "pipedream-2bw"}
LENGTHS = (250, 500, 2000, 4000)


def markov():
    rows = []
    for updates in LENGTHS:
        rows.append(Row(f"AdamW, {updates} updates", cell("markov", updates), cell("markov", updates, **TWO_BW)))
    muon = {"optimizer": "muon"}
    for updates in (500,):
        rows.append(Row(f"Muon, {updates} updates", cell("markov", updates, **muon), cell("markov", updates, **TWO_BW, **muon)))
    return rows


def text(updates=800, **keys):
    return cell("text", updates, **keys)


def on_text():
    muon, rotated = {"optimizer": "muon"}, {"optimizer": "basis_rotation"}
    return [Row("2BW, AdamW", text(), text(**TWO_BW)),
            Row("2BW, Muon, against vanilla Muon", text(**muon), text(**TWO_BW, **muon)),
            Row("vanilla, Muon, against vanilla AdamW", text(), text(**muon)),
            Row("2BW, Muon, against vanilla AdamW", text(), text(**TWO_BW, **muon)),
            Row("2BW, AdamW, error feedback", text(), text(**TWO_BW, error_feedback="true")),
            Row("2BW, Muon, error feedback, against vanilla Muon", text(**muon), text(**TWO_BW, error_feedback="true", **muon)),
            Row("2BW, basis rotation, against vanilla basis rotation", text(**rotated), text(**TWO_BW, **rotated)),
            Row("vanilla, basis rotation, against vanilla AdamW", text(), text(**rotated)),
            Row("2BW, basis rotation, against vanilla AdamW", text(), text(**TWO_BW, **rotated)),
            Row("2BW, AdamW, predicted weights", text(), text(**TWO_BW, predicted="true")),
            Row("2BW, NAdamW, against vanilla AdamW", text(), text(**TWO_BW, optimizer="nadamw"))]


LONGER = {"adamw": (1600, 2400), "muon": (1000,)}
FURTHER = (3200, 4000, 4800)  # for a seed that has not got there


def longer(facts):
    """2BW with more updates than vanilla's 800, at the rate of its 800: by optimizer, cells by updates."""
    found = {}
    for optimizer, lengths in LONGER.items():
        keys = TWO_BW | ({"optimizer": optimizer} if optimizer != "adamw" else {})
        rate = facts.rate(text(**keys))
        found[optimizer] = {n: text(n, fixed=rate, **keys) for n in lengths} if rate else {}
    return found


def small(updates=400, **keys):
    return cell("small", updates, **keys)


def against_2bw(name, updates=400, fixed=0, **keys):
    return Row(name, small(updates, fixed=fixed, **keys), small(updates, fixed=fixed, **TWO_BW, **keys))


def scaling():
    rows = [against_2bw("8 sequences an update, hidden 32, 400 updates")]
    rows += [against_2bw(f"{2 * size} sequences an update", microbatch_size=size) for size in (1, 8)]
    rows += [against_2bw(f"hidden {hidden}", hidden=hidden) for hidden in (16, 64)]
    rows += [against_2bw(f"{updates} updates", updates) for updates in (200, 800)]
    return rows


def rates():
    return [against_2bw(f"learning rate {rate:g}", fixed=rate) for rate in (0.0005, 0.002, 0.008)]


def depth():
    vanilla, rows = small(), []
    one = {"microbatches": 1, "microbatch_size": 8}
    eight = {"microbatches": 8, "microbatch_size": 1}
    for stages in (8, 4, 2):
        for least, name, keys in (  # from so many stages on
                (2, "PipeDream, stashing", {"schedule": "pipedream", **one}),
                (8, "PipeDream, no stashing", {"schedule": "pipedream", "stashing": "none", **one}),
                (8, "PipeDream, vertical sync", {"schedule": "pipedream", "vertical_sync": "true", **one}),
                (8, "PipeDream, stashing, discounted rates", {"schedule": "pipedream", "discounted": "true", **one}),
                (8, "PipeDream, stashing, predicted weights", {"schedule": "pipedream", "predicted": "true", **one}),
                (8, "PipeDream, stashing, Muon", {"schedule": "pipedream", "optimizer": "muon", **one}),
                (8, "PipeDream, stashing, basis rotation", {"schedule": "pipedream", "optimizer": "basis_rotation", **one}),
                (8, "PipeMare, no correction", {"schedule": "pipemare", "correction": "false", **eight}),
                (8, "PipeMare, T2", {"schedule": "pipemare", "correction": "true", **eight}),
                (8, "TiMePReSt", {"schedule": "timeprest", **eight})):
            if stages >= least:
                reference = small(optimizer=keys["optimizer"]) if "optimizer" in keys else vanilla
                rows.append(Row(f"{name}, {stages} stages", reference, small(stages=stages, **keys)))
    return rows


def naive():
    rows = []
    one = {"schedule": "pipedream", "microbatches": 1, "microbatch_size": 8}
    for stages, rate in ((4, 0.1), (4, 0.2), (4, 0.4), (4, 0.6), (8, 0.4)):
        keys = one | {"stages": stages, "optimizer": "momentum"}
        rows.append(Row(f"{stages} stages, momentum SGD at {rate:g}", small(fixed=rate, **keys),
                        small(fixed=rate, stashing="none", **keys)))
    for rate in (0.5, 0.7):
        keys = {"schedule": "pipedream"}
        rows.append(Row(f"8 stages, a product of matrices, SGD at {rate:g}", cell("linear", 1000, 24, rate, **keys),
                        cell("linear", 1000, 24, rate, **keys, stashing="none")))
    rows += [Row(f"{stages} stages, AdamW, each at its best rate", small(stages=stages, **one),
                 small(stages=stages, **one, stashing="none")) for stages in (8,)]
    return rows


def slow(factor):
    return {"perturbations": f'{{"slow_devices":[{{"device":3,"factor":{factor}}}]}}'} if factor > 1 else {}


def asp():
    keys = {"stages": 1, "width": 4, "microbatches": 1, "microbatch_size": 2}
    vanilla = small(**keys)
    return [Row(f"ASP, 4 workers, {'all alike' if factor == 1 else f'one {factor}x slower'}", vanilla,
                small(schedule="asp", **keys, **slow(factor))) for factor in (1, 2, 4)]


EXPERIMENTS = {"markov": markov, "text": on_text, "scaling": scaling, "naive": naive, "rates": rates, "depth": depth, "asp": asp}


def make_runs(facts, wanted, jobs):
    """All runs of the sections; one thread takes a cell from its first rate to its last seed."""
    cells = {}
    for name in wanted:
        if name in EXPERIMENTS:
            cells |= {c: None for row in EXPERIMENTS[name]() for c in (row.reference, row.tried)}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done, _ in enumerate(pool.map(facts.ends, cells), 1):
            print(f"{done}/{len(cells)} cells", file=sys.stderr, flush=True)
        if "longer" in wanted:
            list(pool.map(facts.ends, [c for by in longer(facts).values() for c in by.values()]))
            list(pool.map(lambda optimizer: updates_needed(facts, optimizer), LONGER))


# Statistics ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Difference:
    """Of paired seeds: the mean and the ends of its interval of 95 %."""
    mean: float
    low: float
    high: float

    def verdict(self):
        return "higher" if self.low > 0 else "lower" if self.high < 0 else "none shown"

    def __str__(self):
        return f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


def difference(values, reference):
    """None where a seed diverged."""
    if not all(map(math.isfinite, [*values, *reference])):
        return None
    each = [a - b for a, b in zip(values, reference)]
    mean = statistics.fmean(each)
    half = STUDENT[len(each) - 1] * statistics.stdev(each) / math.sqrt(len(each))
    return Difference(mean, mean - half, mean + half)


def more_diverge(result):
    """The share of seeds that diverge less the reference's, with its interval, and what that shows."""
    apart = difference(*([float(math.isinf(v)) for v in values] for values in (result.ends, result.reference)))
    return f"share that diverges: {apart.mean:+.2f} ({apart.low:+.2f} to {apart.high:+.2f})", apart.verdict()


def spread(values):
    lost = sum(map(math.isinf, values))
    if lost:
        return f"{lost} of {len(values)} diverged"
    return f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}"


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of a row; `apart` is None where a seed diverged."""
    row: Row
    rates: tuple
    reference: list
    ends: list
    apart: Difference | None


def results(facts, rows):
    """Those whose runs are all made."""
    found = []
    for row in rows:
        ends, reference = facts.ends(row.tried), facts.ends(row.reference)
        if ends is None or reference is None:
            continue
        count = min(len(ends), len(reference))
        ends, reference = ends[:count], reference[:count]
        found.append(Result(row, (facts.rate(row.reference), facts.rate(row.tried)), reference, ends, difference(ends, reference)))
    return found


FIGURES = {}  # what is drawn, by its path from docs


# The page -----------------------------------------------------------------------------------------------------------


def markdown(head, lines):
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in [head, ["---"] + ["--:"] * (len(head) - 1), *lines])


def table(found, reference="vanilla"):
    lines = []
    for r in found:
        lines.append([r.row.name, f"{r.rates[0]:g}, {r.rates[1]:g}", len(r.ends), spread(r.reference), spread(r.ends),
                      *((r.apart, r.apart.verdict()) if r.apart else more_diverge(r))])
    return markdown(["", f"rates: {reference}, this", "seeds", f"loss: {reference}", "loss: this", "difference (95 % interval)",
                     "difference shown"], lines)


def forest(found, title, name):
    """Differences with their intervals, one line each, as a figure; returns its line of the page."""
    shown = [r for r in found if r.apart]
    if not shown:
        return "*Not made yet.*"
    low = min(0, *(r.apart.low for r in shown))
    high = max(0, *(r.apart.high for r in shown))
    margin = 0.05 * (high - low)
    step = 10 ** math.floor(math.log10(high - low))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if (high - low) / s <= 8)
    ticks = [(k * step, f"{k * step:.6g}") for k in range(math.ceil((low - margin) / step), math.floor((high + margin) / step) + 1)]
    panel = svg.Panel(330, 36, 420, 20 * len(shown) + 10, (low - margin, high + margin), (0, len(shown)))
    panel.axes(title, "nats above the reference; the line is its interval of 95 %", "", ticks, [])
    panel.add(svg.line(panel.x(0), panel.top, panel.x(0), panel.top + panel.height, "#999", 1, "4 3"))
    for k, r in enumerate(shown):
        y = panel.y(len(shown) - k - 0.5)
        panel.add(svg.text(320, y + 4, r.row.name, 11, "end"), svg.line(panel.x(r.apart.low), y, panel.x(r.apart.high), y, "#0b5cad", 2),
                  svg.marker(panel.x(r.apart.mean), y, "circle", "#0b5cad", size=3.5))
    FIGURES[f"figures/convergence-{name}.svg"] = svg.figure(790, 20 * len(shown) + 100, title, panel.parts)
    return f"![{title}](figures/convergence-{name}.svg)"


def example(one, *more):
    """The command that makes one run of the cell."""
    settings = [f"{k}={v}" for k, v in one.keys] + list(more)
    return " ".join([f"    penstock train docs/convergence/{one.base}.yaml --updates {one.updates}", *(f"--set {s}" for s in settings)])


def entropy_excess(facts):
    """How far above the chain's entropy the longest runs end: vanilla's and 2BW's means."""
    floor = 1.75 * math.log(2)
    return [statistics.fmean(facts.ends(cell("markov", LENGTHS[-1], **keys))) - floor for keys in ({}, TWO_BW)]


def in_words(apart):
    if apart.verdict() == "none shown":
        return f"not shown to differ ({apart})"
    return f"{abs(apart.mean):.4f} nats {apart.verdict()} ({apart})"


def markov_section(facts):
    found = results(facts, markov())
    long = [r for r in found if r.row.name == f"AdamW, {LENGTHS[-1]} updates"]
    answer = ""
    if long:
        (last,), excess = long, entropy_excess(facts)
        answer = (f"With {LENGTHS[-1]:,} updates of AdamW, 2BW's loss is {in_words(last.apart)}; vanilla ends {excess[0]:.4f} above the "
                  f"entropy and 2BW {excess[1]:.4f}. ")
    return f"""## Does 2BW end like vanilla when training converges?

{answer}The data are a Markov chain whose entropy, 1.75 bits or 1.2130 nats a token, no model can beat, so that it is known when
training has converged. A held-out loss is of 65,536 tokens, the same for every rule of a seed; its own error against the entropy
is 0.002, which differences within a seed do not have.

{example(cell("markov", LENGTHS[-1], **TWO_BW))}

{table(found)}

{forest(found, "2BW less vanilla, Markov chain", "markov")}
"""


def text_section(facts):
    found = results(facts, on_text())
    by_name = {r.row.name: r for r in found}
    answer = []
    for name in ("2BW, AdamW", "2BW, AdamW, error feedback", "2BW, Muon, against vanilla Muon",
                 "2BW, Muon, error feedback, against vanilla Muon", "2BW, basis rotation, against vanilla basis rotation"):
        if name in by_name and by_name[name].apart:
            answer.append(f"{name}: {in_words(by_name[name].apart)}.")
    return f"""## And on text, with AdamW, with Muon, with corrections?

{" ".join(answer)} The text is the Jargon File; a run is 800 updates of 8 sequences of 32 bytes, with warm-up and cosine
decay, of a GPT of 4 layers and hidden size 64 (220,544 parameters). Every rule has its own best learning rate. A held-out loss is of
16,384 bytes. *Predicted weights* are SpecTrain's; NAdamW looks ahead as Nesterov's method does (Ajanthan et al., ICML 2025). *Error
feedback* (`training.error_feedback`) is the correction of Zmushko et al. (arXiv 2606.30634): w - u - (u - the last u), with u the optimizer's own step.
The paper itself could not be read; the documentation of another program that has the correction (RamTorch's optimizers for 2BW) defines it so.
*Basis rotation* (Jung et al., ICML 2026, arXiv 2602.03515, as the authors' code defines it) is Adam in the eigenvectors of the running means
of G G^T and G^T G, which are found at the first step and renewed every ten steps by a product and a QR decomposition.

{example(text(**TWO_BW, optimizer="muon"), "training.data=jargon.txt")}

{table(found)}

{forest(found, "Text, 800 updates", "text")}
"""


# The clusters whose updates are simulated: what, scenario and keys, schedules of vanilla and 2BW.
CLUSTERS = [("GPT-2.2B, 8 V100, batch 64", "gpt-2.2b-flush", {"microbatches": 8}),
            ("GPT-2.2B, 8 V100, batch 128", "gpt-2.2b-flush", {"microbatches": 16}),
            ("GPT-2.2B, 8 V100, batch 512", "gpt-2.2b-flush", {"microbatches": 64}),
            *((f"Llama-3-70B, 64 H100, batch {batch}", "llama-3-70b-h100",
               {"stages": 8, "width": 2, "split": "[9,10,10,10,10,10,11,10]", "global_batch_size": batch}) for batch in (32, 64, 256))]


def seconds_per_update(scenario, keys, **more):
    words = [BINARY, "simulate", scenario, "--format", "json"]
    for key, value in {**keys, **more}.items():
        words += ["--set", f"{key}={value}"]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT, env=os.environ | {"PENSTOCK_HOME": str(ROOT)})
    result = json.loads(done.stdout)
    if not result["feasible"]:
        sys.exit(f"{scenario} {keys} {more} does not fit")
    return result["iteration_time_s"]


def crossing(points, target):
    """The number of updates at which the losses, by number of updates, first reach the target; infinite where they do not."""
    for (n, a), (m, b) in zip(points, points[1:]):
        if a > target >= b:
            return n + (m - n) * (a - target) / (a - b)
    return points[0][0] if points[0][1] <= target else math.inf


def updates_needed(facts, optimizer):
    """2BW's updates over vanilla's 800 to the loss that vanilla has with the same seed: in words, the mean over the seeds with its
    interval (None where a seed does not come there) and each seed's; None where runs miss."""
    keys = {} if optimizer == "adamw" else {"optimizer": optimizer}
    target, rate = facts.ends(text(**keys)), facts.rate(text(**TWO_BW, **keys))
    if target is None or rate is None:
        return None
    ratios = []
    for seed, loss in enumerate(target, 1):
        points, reached = [], math.inf
        for n in (800, *LONGER[optimizer], *FURTHER):
            if math.isfinite(reached) or (found := facts.loss(text(n, **TWO_BW, **keys).run(rate, seed))) is None:
                break
            points.append((n, found))
            reached = crossing(points, loss)
        ratios.append(reached / 800)
    there = [ratio for ratio in ratios if math.isfinite(ratio)]
    if len(there) < len(ratios):
        return f"{min(ratios):.2f} and more ({len(there)} of {len(ratios)} seeds get there)", None, ratios
    apart = difference(ratios, [0] * len(ratios))
    return f"{apart.mean:.2f} ({apart.low:.2f} to {apart.high:.2f})", apart, ratios


def longer_figure(facts):
    """Losses against updates, each a training of its own: vanilla's 800 and 2BW's more; returns its line of the page."""
    series = []
    for optimizer, name in (("adamw", "AdamW"), ("muon", "Muon")):
        keys = {} if optimizer == "adamw" else {"optimizer": optimizer}
        cells = [(800, text(**TWO_BW, **keys)), *sorted(longer(facts)[optimizer].items())]
        series.append((f"2BW, {name}", [(n, statistics.fmean(ends)) for n, c in cells if (ends := facts.ends(c))]))
        vanilla = statistics.fmean(facts.ends(text(**keys)))
        series.append((f"vanilla's 800, {name}", [(800, vanilla), (LONGER["adamw"][-1], vanilla)]))
    low = math.floor(10 * min(y for _, points in series for _, y in points)) / 10
    high = math.ceil(10 * max(y for _, points in series for _, y in points)) / 10
    panel = svg.Panel(70, 36, 420, 230, (700, LONGER["adamw"][-1] + 100), (low, high))
    panel.axes("Loss against updates, text", "updates", "held-out loss, nats", [(n, str(n)) for n in (800, *LONGER["adamw"])],
               [(low + 0.2 * k, f"{low + 0.2 * k:.1f}") for k in range(int((high - low) / 0.2) + 1)])
    for (_, points), style in zip(series, svg.STYLES):
        panel.series(points, style)
    names = [svg.legend(510, 60 + 24 * k, [(name, style, True)], 0) for k, ((name, _), style) in enumerate(zip(series, svg.STYLES))]
    FIGURES["figures/convergence-longer.svg"] = svg.figure(720, 320, "Loss against updates", panel.parts, *names)
    return "![Loss against updates](figures/convergence-longer.svg)"


def longer_section(facts):
    needed = {optimizer: updates_needed(facts, optimizer) for optimizer in LONGER}
    lines = []
    for what, scenario, keys in CLUSTERS:
        for optimizer, found in needed.items():
            if found is None:
                continue
            of = {"training.optimizer": optimizer} if optimizer != "adamw" else {}
            both = [seconds_per_update(scenario, keys, schedule=s, **of) for s in ("1f1b", "pipedream-2bw")]
            ratio, words, apart, each = both[0] / both[1], *found
            seeds = f"{sum(ratio > needed for needed in each)} of {len(each)}"
            if apart is None:
                time, faster = "–", "no" if ratio < min(each) else "not shown"
            else:
                time = f"{ratio / apart.mean:.2f}x"
                faster = "yes" if ratio > apart.high else "no" if ratio < apart.low else "not shown"
            lines.append([f"{what}, {'AdamW' if optimizer == 'adamw' else 'Muon'}", f"{both[0]:.2f}", f"{both[1]:.2f}", f"{ratio:.2f}x",
                          words if apart else f"{min(each):.2f} and more", time, seeds, faster])
    verdicts = [f"with {name} it is shown to be faster in {sum(name in line[0] and line[-1] == 'yes' for line in lines)} and slower in "
                f"{sum(name in line[0] and line[-1] == 'no' for line in lines)}" for name in ("AdamW", "Muon")]
    says = "; ".join(f"{'AdamW' if o == 'adamw' else 'Muon'}: {found[0]}" for o, found in needed.items() if found)
    each_seed = "; ".join(f"{'AdamW' if o == 'adamw' else 'Muon'} {', '.join(f'{ratio:.2f}' for ratio in sorted(found[2]))}"
                          for o, found in needed.items() if found)
    return f"""## Is 2BW still faster to a loss?

Of the {len(CLUSTERS)} batches of these clusters, {", and ".join(verdicts)}.

Updates that 2BW needs for the loss that vanilla has after 800, over 800 (interval over 8 seeds): {says}. Each
number of updates is a training of its own, with the whole cosine decay, at the rate that was best for 800; a seed that has not got there
goes on to {", ".join(f"{n:,}" for n in FURTHER)}. By seed: {each_seed}.

A cluster is faster with 2BW where its updates are faster by more than they are more: *yes* and *no* say that the interval of the latter lies on
one side of the former, and *not shown* that the former lies in it. The time of an update is simulated; the ratio of
updates is that of the GPT of 220,544 parameters above, *assumed* to be that of the large model, which nobody could check on two
cores: the section after this one says how the gap changes with batch and width.

{markdown(["", "vanilla, s per update", "2BW, s per update", "2BW's updates are faster", "2BW's updates are more", "time to the loss",
           "seeds in which 2BW is faster", "2BW is faster"], lines)}

{longer_figure(facts)}

The flush costs (p-1)/m of the time, so a large batch leaves 2BW little to win. Schedules without a flush's bubble and
without staleness (ZB-V) are the other way out: `penstock compare`.
"""


def gaps(found, names):
    """The differences of these rows, one after the other."""
    by_name = {r.row.name: r.apart for r in found}
    return ", ".join(f"{by_name[name].mean:+.2f}" for name in names if by_name.get(name))


def scaling_section(facts):
    found = results(facts, rates() + scaling())
    base = "8 sequences an update, hidden 32, 400 updates"
    own, fixed = (statistics.fmean(facts.ends(one)) for one in (small(), small(fixed=0.002)))
    better = (f"Vanilla's rate of the line of 8 sequences, {facts.rate(small()):g}, was the best of {len(SEARCH_SEEDS)} seeds and is not the best of "
              f"the eight others: with 0.002 it ends {own - fixed:.2f} lower, so that gaps against it, here and in the next section, are as much "
              "larger." if fixed < own else "")
    return f"""## How does 2BW's gap go with learning rate, batch, width and length of training?

Of 2, 8 and 16 sequences an update the gap is {gaps(found, ["2 sequences an update", base, "16 sequences an update"])}: with 16, whose
gradients have least noise, a delay costs most. Of hidden sizes 16, 32 and 64 it is {gaps(found, ["hidden 16", base, "hidden 64"])}; of 200, 400 and
800 updates {gaps(found, ["200 updates", base, "800 updates"])}; of learning rates 0.0005, 0.002 and 0.008 for
both {gaps(found, [f"learning rate {r:g}" for r in (0.0005, 0.002, 0.008)])}.
{better}

A GPT of 8 layers and hidden size 32 (110,912 parameters), sequences of 32 bytes, 8 an update, 400 updates, AdamW; each line changes one of
these. Lines with a learning rate have it fixed for both rules; in all others each rule has its best.

{example(small(**TWO_BW), "training.data=jargon.txt")}

{table(found)}

{forest(found, "2BW less vanilla, text", "scaling")}
"""


def depth_section(facts):
    found = results(facts, depth())
    rotated = gaps(found, ["PipeDream, stashing, basis rotation, 8 stages"])
    rotation = f", with basis rotation {rotated} from vanilla with that" if rotated else ""
    return f"""## How does it go with the depth of the pipeline, and do other rules do better?

With 2, 4 and 8 stages PipeDream ends {gaps(found, [f"PipeDream, stashing, {n} stages" for n in (2, 4, 8)])} from vanilla; with 8 stages and
Muon {gaps(found, ["PipeDream, stashing, Muon, 8 stages"])} from vanilla with Muon{rotation}. No correction of a loss with AdamW brings it to vanilla's.

PipeDream's stage s of p is p - 1 - s updates behind, 2BW's gradient is one behind at any depth. The model is the one of 8 layers above; PipeDream
updates after each microbatch, which has the 8 sequences. PipeMare and TiMePReSt have 8 microbatches of one. The reference is vanilla, with the
optimizer of the rule.

{example(small(schedule="pipedream", stages=8, microbatches=1, microbatch_size=8), "training.data=jargon.txt")}

{table(found)}

{forest(found, "Less vanilla, text, by number of stages", "depth")}
"""


def naive_section(facts):
    found = results(facts, naive())
    higher = [r.row.name for r in found if r.apart and r.apart.verdict() == "higher"]
    diverge = [r.row.name for r in found if not r.apart and more_diverge(r)[1] == "higher"]
    answer = (f"Without stashing the loss is shown to be higher in {len(higher)} of these {len(found)} settings"
              f"{': ' if higher else ''}{'; '.join(higher)}, and more seeds are shown to diverge in {len(diverge)}"
              f"{': ' if diverge else ''}{'; '.join(diverge)}. At the size of these language models the delay is what costs.")
    return f"""## Does weight stashing matter? (naive pipelining)

{answer} The reference is PipeDream *with* stashing; the difference is what it costs that a backward uses other weights than its
forward. Both have the same delay.

{example(small(schedule="pipedream", stages=8, microbatches=1, microbatch_size=8, optimizer="momentum", stashing="none"),
         "training.data=jargon.txt", "training.learning_rate=0.4")}

{table(found, "stashing")}

{forest(found, "No stashing less stashing, text", "naive")}
"""


def asp_section(facts):
    found = results(facts, asp())
    return f"""## Asynchronous workers with stragglers

ASP ends {gaps(found, [r.row.name for r in found])} from the synchronous loss with no slow worker, one 2x and one 4x slower; a straggler's own updates are staler,
but the others' are less so.

Four data-parallel workers with 2 sequences each, AdamW. The reference is synchronous; ASP makes an update of each worker's 2 sequences, with the weights
that it has in the simulated run. Both see the same number of sequences, so ASP makes four times the updates of a quarter of the size.

{example(small(schedule="asp", stages=1, width=4, microbatches=1, microbatch_size=2), "training.data=jargon.txt")}

{table(found, "synchronous")}

{forest(found, "ASP less synchronous, text", "asp")}
"""


def theory_section(_):
    lines = [[delay, f"{2 * math.sin(math.pi / (4 * delay + 2)):.4f}"] for delay in (0, 1, 3, 7, 15)]
    return f"""## Theory: what a delay allows

Gradient descent on a quadratic with a delay of tau updates, w(t+1) = w(t) - lr w(t - tau), is stable up to
lr = 2 sin(pi / (4 tau + 2)) / curvature. A pipeline of p stages delays PipeDream's stage s by p - 1 - s updates, 2BW's by one,
PipeMare's forward by (2 (p - 1 - s) + 1) / m. `tests/hw/training_test.cpp` trains `problem: quadratic` 5 % below the limit, where it
shrinks, and 5 % above, where it grows, at 1, 2, 4 and 8 stages.

{markdown(["delay in updates", "largest learning rate x curvature"], lines)}

    penstock train small-pipedream --set training.problem=quadratic --updates 1000 --set training.learning_rate=0.4

AdamW divides by the size of the gradient, so its rates do not compare with these limits number by number.

## What is out of reach on two cores

These models have 0.03 to 0.3 million parameters and see less than one pass over 1.4 MB of text. Not shown, and not to be concluded from
here: whether the gap of AdamW at a delay of one closes in the long training of a large model; the papers' own tasks (ImageNet with VGG-16,
BERT to an accuracy on MNLI and RACE, GPT-2 on WikiText); batches as large as those of clusters, where gradients have little noise. Rates are a factor of
two apart and were chosen with three seeds, or with one: on the Markov
chain, and of the text's table the lines with corrections, basis rotation or NAdamW. Of the intervals of 95 %, one in twenty is expected to miss; no correction is made for their number.
"""


HEAD = """# What do stale weights cost?

<!-- Written by scripts/convergence.py from docs/convergence/runs.csv. -->

A pipeline without a flush trains with weights that are updates behind. This page asks what that costs, in experiments that one command
makes: `scripts/convergence.py --text jargon.txt` (it says where the text is from, and goes on where it was interrupted). Each of
its {runs:,} trainings is a row of [runs.csv](convergence/runs.csv), and a test makes some of them again.

How each is made: a rule and its setting walk over learning rates, each twice the one before, with seeds of their own, until the best has a worse one on both sides; then other seeds, as many as the table says, are trained at that rate. Losses are nats a token, held out, after the last update:
mean and standard deviation over the seeds. A *difference* is the mean over seeds of this loss less the reference's, which has
the same first weights and data, with Student's interval of 95 %. *Higher* or *lower* says that the interval leaves out zero;
*none shown* does not say that there is none, only that it is not outside of the interval. Warm-up is 50 updates; the rate decays as a cosine to a tenth.
"""

SECTIONS = [("markov", markov_section), ("text", text_section), ("longer", longer_section), ("scaling", scaling_section),
            ("depth", depth_section), ("naive", naive_section), ("asp", asp_section), ("theory", theory_section)]


def page(facts):
    """Texts by path from docs: the page and its figures."""
    parts = [HEAD.format(runs=len(facts.losses)), *(make(facts) for _, make in SECTIONS)]
    return {"convergence.md": "\n".join(parts), **FIGURES}


def repeat(facts, count):
    """Makes the cheapest runs that need no text again, and the page; returns how many differ, runs by more than rounding can."""
    wrong = 0
    for run in sorted((run for run in facts.losses if run[0] in ("markov", "linear")), key=lambda run: int(run[2]))[:count]:
        again = trained(run, "")
        # Other processors sum in other orders; 250 updates enlarge that, but by far less than seeds differ.
        same = abs(again - facts.losses[run]) <= 0.002
        wrong += not same
        print(f"{' '.join(run)}: {again:.6f}, runs.csv has {facts.losses[run]:.6f}{'' if same else ': it differs'}")
    for path, text in page(facts).items():
        same = (FOLDER.parent / path).read_text() == text
        wrong += not same
        print(f"docs/{path} {'is as made now' if same else 'differs from what is made now'}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--section", action="append", choices=[*EXPERIMENTS, "longer"])
    parser.add_argument("--repeat", type=int)
    options = parser.parse_args()
    if options.repeat:
        return 1 if repeat(Facts(None), options.repeat) else 0
    if options.text:
        with tempfile.TemporaryDirectory() as folder:
            # One byte per character.
            plain = pathlib.Path(folder) / "text.txt"
            plain.write_bytes(pathlib.Path(options.text).read_bytes().decode("utf-8", "replace").encode("ascii", "replace"))
            make_runs(Facts(str(plain)), options.section or [*EXPERIMENTS, "longer"], options.jobs)
    for path, text in page(Facts(None)).items():
        (FOLDER.parent / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
