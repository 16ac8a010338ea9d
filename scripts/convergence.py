#!/usr/bin/env python3
"""Makes docs/convergence.md: a small GPT on a text, trained under eight update rules at several depths.

    scripts/convergence.py TEXT [--updates 200] [--seeds 5] [--depths 4,8] [--hidden 128] [--rates 0.001,0.003,0.01]
                           [--out docs/convergence.md] [--keep FOLDER]

TEXT: the Jargon File, which is in the public domain, as Debian's package dict-jargon ships it
(apt-get download dict-jargon; dpkg -x dict-jargon*.deb x; zcat x/usr/share/dictd/jargon.dict.dz > jargon.txt).
Every rule makes an update of the same samples, and its learning rate is searched alike, with one seed. Needs
./penstock, or $PENSTOCK_BINARY."""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLES = 8  # per update
# What the page calls a rule, its schedule, its keys of `pipeline`, does it update after each microbatch.
RULES = [("vanilla (1F1B, flush)", "1f1b", {}, False), ("2BW", "pipedream-2bw", {}, False),
         ("PipeDream, stashing", "pipedream", {}, True),
         ("PipeDream, vertical sync", "pipedream", {"vertical_sync": True}, True),
         ("PipeDream, no stashing", "pipedream", {"stashing": "none"}, True),
         ("PipeMare, T2", "pipemare", {"correction": True}, False),
         ("PipeMare, no correction", "pipemare", {"correction": False}, False),
         ("TiMePReSt", "timeprest", {}, False)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--search-updates", type=int, help="of the search for rates; default: as many")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--depths", default="4,8")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--rates", default="0.001,0.003,0.01")
    parser.add_argument("--out", default=str(ROOT / "docs/convergence.md"))
    parser.add_argument("--keep", help="a folder for the scenarios and results")
    return parser.parse_args()


def plain(path):
    """The text with one byte per character."""
    return pathlib.Path(path).read_bytes().decode("utf-8", "replace").encode("ascii", "replace")


def scenario(folder, rule, depth, options):
    name, schedule, keys, each = rule
    pipeline = {"stages": depth, "microbatch_size": SAMPLES if each else 1, "microbatches": 1 if each else SAMPLES, **keys}
    model = {"num_layers": 8, "hidden_size": options.hidden, "num_attention_heads": 4, "vocab_size": 128, "seq_length": 64,
             "precision": "fp32"}
    path = folder / f"{schedule}-{'-'.join(map(str, keys.values())).lower()}-{depth}.yaml".replace("--", "-")
    path.write_text(json.dumps({
        "name": name, "model": model, "cluster": {"base": "p3.16xlarge"}, "schedule": schedule, "pipeline": pipeline,
        "training": {"data": "text.txt", "warmup": options.updates // 10, "evaluate_every": options.updates,
                     "evaluation_microbatches": 8 if each else 64}}, indent=1))
    return path


def train(paths, *words):
    binary = os.environ.get("PENSTOCK_BINARY", str(ROOT / "penstock"))
    done = subprocess.run([binary, "train", *map(str, paths), "--format", "json", *words], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["scenarios"]


def last(run):
    """The loss on held-out text at the end; infinite where the run stopped before."""
    loss = run["curve"][-1].get("evaluation_loss") if run["complete"] else None
    return math.inf if loss is None else loss


def searched(paths, rates, options):
    """By scenario: the best rate, and the losses of all."""
    found = [{} for _ in paths]
    updates = str(options.search_updates or options.updates)
    for rate in rates:
        for losses, result in zip(found, train(paths, "--updates", updates, "--set", f"training.learning_rate={rate}")):
            losses[rate] = last(result["runs"][0])
    return [(min(losses, key=losses.get), losses) for losses in found]


def number(x, digits=3):
    return f"{x:.{digits}f}" if math.isfinite(x) else "diverged"


def spread(values):
    finite = [v for v in values if math.isfinite(v)]
    if len(finite) < len(values):
        return f"{len(values) - len(finite)} of {len(values)} diverged"
    mean = sum(finite) / len(finite)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in finite) / max(1, len(finite) - 1))
    return f"{mean:.3f} ± {deviation:.3f}"


def verdict(values, vanilla):
    """Is the mean within vanilla's own spread, from the least to the most of its seeds?"""
    if not all(map(math.isfinite, values)):
        return "no: it diverges"
    mean = sum(values) / len(values)
    if min(vanilla) <= mean <= max(vanilla):
        return "yes"
    return f"no: {mean - sum(vanilla) / len(vanilla):+.3f}"


def table(depth, rules, rates, results):
    head = ["rule", "rate", "held-out loss", "within vanilla's spread", "updates/s on 8 V100", *(f"at {r:g}" for r in rates)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    vanilla = results[0][1]
    for (name, *_), (rate, losses, speed, search) in zip(rules, results):
        cells = [name, f"{rate:g}", spread(losses), "" if losses is vanilla else verdict(losses, vanilla), f"{speed:.0f}",
                 *(number(search[r]) for r in rates)]
        lines.append(f"| {' | '.join(cells)} |")
    return f"### {depth} stages\n\n" + "\n".join(lines)


def at_depth(folder, depth, rates, options):
    paths = [scenario(folder, rule, depth, options) for rule in RULES]
    results = []
    for path, (rate, search) in zip(paths, searched(paths, rates, options)):
        (result,) = train([path], "--updates", str(options.updates), "--seeds", str(options.seeds),
                          "--set", f"training.learning_rate={rate}")
        curve = result["runs"][0]["curve"]
        speed = len(curve) / curve[-1]["simulated_s"]
        results.append((rate, [last(run) for run in result["runs"]], speed, search))
        print(depth, path.name, rate, spread(results[-1][1]), file=sys.stderr)
        parameters = result["parameters"]
    return results, parameters


def limits():
    rows = []
    for delay in (0, 1, 3, 7, 15):
        rows.append(f"| {delay} | {2 * math.sin(math.pi / (4 * delay + 2)):.4f} |")
    return "| delay in updates | largest learning rate x curvature |\n|---|---|\n" + "\n".join(rows)


PAGE = """# Does it learn the same?

<!-- Written by scripts/convergence.py: {command} -->

A GPT of 8 layers (hidden {hidden}, {parameters:,} parameters, sequences of 64 bytes) learns the Jargon File (public domain; Debian's
`dict-jargon`) for {updates} updates of {samples} sequences with AdamW, under eight update rules, with {seeds} seeds each. Each rule's
learning rate was searched alike among {rates} with one seed{search}; the last columns are what that search found. Losses are nats per
byte on held-out text, mean and standard deviation over the seeds. A rule learns like vanilla where its mean lies between the worst and
the best of vanilla's own seeds. Every rule makes its updates of the same {samples} sequences: PipeDream, which updates after every
microbatch, of one microbatch of {samples}, the others of {samples} microbatches of one. The last but the search is how many updates
a second the cluster (one p3.16xlarge, 8 V100) makes of this model in simulation: what staleness buys.

These runs are short: {updates} updates are {bytes:,} bytes. They say how rules differ early, where gradients are large and staleness
costs most, and not what a trained model ends with.

{tables}

## Theory: what a delay allows

Gradient descent on a quadratic with a delay of tau updates, w(t+1) = w(t) - lr w(t - tau), is stable up to
lr = 2 sin(pi / (4 tau + 2)) / curvature. A pipeline of p stages delays PipeDream's stage s by p - 1 - s updates, 2BW's by one,
PipeMare's forward by (2 (p - 1 - s) + 1) / m. `tests/hw/training_test.cpp` trains `problem: quadratic` 5 % below the limit, where it
shrinks, and 5 % above, where it grows, at 1, 2, 4 and 8 stages.

{limits}

    penstock train small-pipedream --set training.problem=quadratic --updates 1000 --set training.learning_rate=0.4
"""


def main():
    options = arguments()
    rates = [float(r) for r in options.rates.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary)
        folder.mkdir(exist_ok=True)
        (folder / "text.txt").write_bytes(plain(options.text))
        tables = []
        for depth in map(int, options.depths.split(",")):
            results, parameters = at_depth(folder, depth, rates, options)
            tables.append(table(depth, RULES, rates, results))
    short = f" and {options.search_updates} updates" if options.search_updates else ""
    command = " ".join(["scripts/convergence.py jargon.txt", *(w for w in sys.argv[2:])])
    pathlib.Path(options.out).write_text(PAGE.format(
        command=command, hidden=options.hidden, parameters=parameters, updates=options.updates, samples=SAMPLES, seeds=options.seeds,
        rates=", ".join(f"{r:g}" for r in rates), search=short, bytes=options.updates * SAMPLES * 64, tables="\n\n".join(tables),
        limits=limits()))


if __name__ == "__main__":
    main()
