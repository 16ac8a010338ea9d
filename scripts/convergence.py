#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/convergence.md: a small GPT on a text, trained under eight update rules at several depths.

    scripts/convergence.py TEXT [--updates 200] [--seeds 5] [--depths 4,8] [--hidden 104] [--rates 0.0001,0.0003,0.001,0.003]
                           [--out docs/convergence.md] [--keep FOLDER]

With --keep, runs that FOLDER has are not made again: an interrupted script goes on, and the page can be written anew.

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
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "docs/figures"))
import svg  # noqa: E402

SAMPLES, SEQUENCE = 8, 32  # per update; bytes of each
# What the page calls a rule, its schedule, its keys of `pipeline`, does it update after each microbatch.
# The first two are the same at every depth.
RULES = [("vanilla (1F1B, flush)", "1f1b", {}, False), ("2BW", "pipedream-2bw", {}, False),
         ("PipeDream, stashing", "pipedream", {}, True),
         ("PipeDream, vertical sync", "pipedream", {"vertical_sync": True}, True),
         ("PipeDream, no stashing", "pipedream", {"stashing": "none"}, True),
         ("PipeMare, T2", "pipemare", {"correction": True}, False),
         ("PipeMare, no correction", "pipemare", {"correction": False}, False),
         ("TiMePReSt", "timeprest", {}, False)]
ONE_DEPTH = {name for name, *_ in RULES[:2]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--depths", default="4,8")
    parser.add_argument("--hidden", type=int, default=104)
    parser.add_argument("--rates", default="0.0001,0.0003,0.001,0.003")
    parser.add_argument("--out", default=str(ROOT / "docs/convergence.md"))
    parser.add_argument("--keep", help="a folder for the scenarios and results")
    parser.add_argument("--made", action="store_true", help="make no runs: the page of those that the folder has")
    return parser.parse_args()


def plain(path):
    """The text with one byte per character."""
    return pathlib.Path(path).read_bytes().decode("utf-8", "replace").encode("ascii", "replace")


def scenario(folder, rule, depth, options):
    name, schedule, keys, each = rule
    pipeline = {"stages": depth, "microbatch_size": SAMPLES if each else 1, "microbatches": 1 if each else SAMPLES, **keys}
    model = {"num_layers": 8, "hidden_size": options.hidden, "num_attention_heads": 4, "vocab_size": 128, "seq_length": SEQUENCE,
             "precision": "fp32"}
    path = folder / f"{schedule}-{'-'.join(map(str, keys.values())).lower()}-{depth}.yaml".replace("--", "-")
    path.write_text(json.dumps({
        "name": name, "model": model, "cluster": {"base": "p3.16xlarge"}, "schedule": schedule, "pipeline": pipeline,
        "training": {"data": "text.txt", "warmup": options.updates // 10, "evaluate_every": options.updates,
                     "evaluation_microbatches": 16 if each else 128}}, indent=1))
    return path


def train(path, rate, seed, options):
    """One run: its loss at every update and on held-out text at the end, and how long it took."""
    kept = path.with_name(f"{path.stem}-{rate:g}-{seed}-{options.updates}.json")
    if not kept.exists() and options.made:
        options.missing.add(kept.name)
        return None
    if not kept.exists():
        binary = os.environ.get("PENSTOCK_BINARY", str(ROOT / "penstock"))
        done = subprocess.run([binary, "train", str(path), "--format", "json", "--updates", str(options.updates), "--set",
                               f"training.learning_rate={rate}", "--set", f"training.seed={seed}"], stdout=subprocess.PIPE,
                              check=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
        part = kept.with_suffix(".part")
        part.write_bytes(done.stdout)
        part.rename(kept)
    (result,) = json.loads(kept.read_text())["scenarios"]
    return result


def last(result):
    """The loss on held-out text at the end; infinite where the run stopped before."""
    if result is None:
        return math.nan
    (run,) = result["runs"]
    loss = run["curve"][-1].get("evaluation_loss") if run["complete"] else None
    return math.inf if loss is None else loss


def searched(path, rates, options):
    """By rate: the loss of the first seed."""
    return {rate: last(train(path, rate, 1, options)) for rate in rates}


def number(x, digits=3):
    if math.isnan(x):
        return "not made"
    return f"{x:.{digits}f}" if math.isfinite(x) else "diverged"


def spread(values):
    finite = [v for v in values if math.isfinite(v)]
    if len(finite) < len(values):
        return f"{len(values) - len(finite)} of {len(values)} diverged"
    mean = sum(finite) / len(finite)
    if len(finite) == 1:
        return f"{mean:.3f}"
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


def table(depth, rates, results):
    head = ["rule", "rate", "seeds", "held-out loss", "within vanilla's spread", "updates/s on 8 V100", *(f"at {r:g}" for r in rates)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    vanilla = results[0]
    for r in results:
        close = "" if r is vanilla else verdict(r["losses"], vanilla["losses"])
        cells = [r["rule"], f"{r['rate']:g}", str(len(r["losses"])), spread(r["losses"]), close, f"{r['speed']:.0f}",
                 *(number(r["search"][rate]) for rate in rates)]
        lines.append(f"| {' | '.join(cells)} |")
    return f"### {depth} stages\n\n" + "\n".join(lines)


COLORS = ["#000000", "#0b5cad", "#c2571a", "#2e7d32", "#b71c1c", "#6a1b9a", "#ad8b00", "#7d7d7d"]
DASHES = ["", "7 3", "2 3", "10 3 2 3"]


def picture(depths):
    """Mean loss over the seeds against updates, a panel per depth, smoothed over a twentieth of the run."""
    parts, width = [], 440
    for k, (depth, results) in enumerate(depths):
        updates = len(results[0]["curves"][0])
        window = max(1, updates // 20)
        smooth = [[sum(c[max(0, i - window + 1):i + 1]) / len(c[max(0, i - window + 1):i + 1]) for i in range(0, len(c))]
                  for c in ([sum(points) / len(points) for points in zip(*r["curves"])] for r in results)]
        low = math.floor(10 * min(min(c) for c in smooth)) / 10
        panel = svg.Panel(60 + k * (width + 70), 40, width, 300, (0, updates), (low, low + 1.6))
        panel.axes(f"{depth} stages", "updates", "" if k else "loss, nats per byte",
                   [(x, str(x)) for x in range(0, updates + 1, max(1, updates // 4))],
                   [(low + 0.4 * i, f"{low + 0.4 * i:.1f}") for i in range(5)])
        for i, c in enumerate(smooth):
            inside = [(x, y) for x, y in enumerate(c) if y <= low + 1.6]
            path = " ".join(f"{svg.number(panel.x(x))},{svg.number(panel.y(y))}" for x, y in inside)
            dash = f' stroke-dasharray="{DASHES[i % 4]}"' if DASHES[i % 4] else ""
            panel.add(f'<polyline points="{path}" fill="none" stroke="{COLORS[i]}" stroke-width="1.5"{dash}/>')
        parts.append(panel.parts)
    legend = []
    for i, r in enumerate(depths[0][1]):
        x, y = 60 + (i % 4) * 240, 400 + (i // 4) * 20
        legend += [svg.line(x, y, x + 34, y, COLORS[i], 1.8, DASHES[i % 4]), svg.text(x + 41, y + 4, r["rule"])]
    whole = len(depths) * (width + 70) + 10
    return svg.figure(whole, 435, "Loss against updates under eight update rules", *parts, legend)


def same_as(former, made):
    """The results of another depth, where the rule asks for the same ones and the first seed has shown that they are."""
    (run,) = made["runs"]
    if former["curves"][0] != [p["loss"] for p in run["curve"]]:
        sys.exit(f"{former['rule']} depends on the depth")
    return former | {"speed": speed_of(made)}


def speed_of(result):
    curve = result["runs"][0]["curve"]
    return len(curve) / curve[-1]["simulated_s"]


def at_depth(folder, depth, rates, options, former):
    """By rule: its rate, the losses of its seeds, updates per simulated second, losses by rate, curves."""
    results = []
    for rule in RULES:
        path = scenario(folder, rule, depth, options)
        if former and rule[0] in ONE_DEPTH:
            (known,) = (r for r in former if r["rule"] == rule[0])
            made = train(path, known["rate"], 1, options)
            results += [same_as(known, made)] if made else []
            continue
        search = searched(path, rates, options)
        rate = min((r for r in search if not math.isnan(search[r])), key=search.get, default=None)
        if rate is None:
            continue
        made = [train(path, rate, seed, options) for seed in range(1, options.seeds + 1)]
        made = [result for result in made if result is not None]
        results.append({"rule": rule[0], "rate": rate, "losses": [last(result) for result in made], "speed": speed_of(made[0]),
                        "search": search, "curves": [[p["loss"] for p in result["runs"][0]["curve"]] for result in made],
                        "parameters": made[0]["parameters"]})
        print(depth, path.name, f"{rate:g}", spread(results[-1]["losses"]), file=sys.stderr, flush=True)
    return results


def limits():
    rows = []
    for delay in (0, 1, 3, 7, 15):
        rows.append(f"| {delay} | {2 * math.sin(math.pi / (4 * delay + 2)):.4f} |")
    return "| delay in updates | largest learning rate x curvature |\n|---|---|\n" + "\n".join(rows)


PAGE = """# Does it learn the same?

<!-- Written by scripts/convergence.py: {command} -->

A GPT of 8 layers (hidden {hidden}, {parameters:,} parameters, sequences of {sequence} bytes) learns the Jargon File (public domain; Debian's
`dict-jargon`) for {updates} updates of {samples} sequences with AdamW, under eight update rules, with {seeds} seeds at most. Each rule's
learning rate was searched alike among {rates} with the first seed; the last columns are what that search found,
and so say at which rate a rule breaks. Losses are nats per byte on held-out text, mean and standard deviation over the seeds. A rule learns like
vanilla where its mean lies between the worst and the best of vanilla's own seeds. Every rule makes its updates of the same
{samples} sequences: PipeDream, which updates after every microbatch, of one microbatch of {samples}, the others of {samples} microbatches of
one. Vanilla and 2BW are the same at every depth, so their runs are shown twice. *Updates/s* is
what one p3.16xlarge (8 V100) makes of this model in simulation. Staleness buys the difference between 2BW and vanilla; PipeDream's
lead is mostly that of so small a model eight sequences take a GPU hardly longer than one.

How small this is: {updates} updates are {bytes:,} bytes, {passes:.2f} passes over the text. It says how rules differ early, where gradients are
large and staleness costs most, and not what a trained model ends with. One seed chose each rate, and the rates are a factor of
three apart. These are {runs} runs, of about 12 s each on one core{missing}.

{tables}

![loss against updates](figures/convergence.svg)

Training loss of each update, mean over the seeds at the rule's rate, averaged over the last {window} updates.

## Theory: what a delay allows

Gradient descent on a quadratic with a delay of tau updates, w(t+1) = w(t) - lr w(t - tau), is stable up to
lr = 2 sin(pi / (4 tau + 2)) / curvature. A pipeline of p stages delays PipeDream's stage s by p - 1 - s updates, 2BW's by one,
PipeMare's forward by (2 (p - 1 - s) + 1) / m. `tests/hw/training_test.cpp` trains `problem: quadratic` 5 % below the limit, where it
shrinks, and 5 % above, where it grows, at 1, 2, 4 and 8 stages.

{limits}

    penstock train small-pipedream --set training.problem=quadratic --updates 1000 --set training.learning_rate=0.4

AdamW divides by the size of the gradient, so its rates do not compare with these limits number by number.
"""


def main():
    options = arguments()
    options.missing = set()
    rates = [float(r) for r in options.rates.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary)
        folder.mkdir(exist_ok=True)
        text = plain(options.text)
        (folder / "text.txt").write_bytes(text)
        depths = []
        for depth in map(int, options.depths.split(",")):
            results = at_depth(folder, depth, rates, options, depths[0][1] if depths else None)
            if results:
                depths.append((depth, results))
        runs = list(folder.glob(f"*-*-*-{options.updates}.json"))
    command = " ".join(["scripts/convergence.py jargon.txt", *(w for w in sys.argv[2:])])
    out = pathlib.Path(options.out)
    seen = options.updates * SAMPLES * SEQUENCE
    out.write_text(PAGE.format(
        command=command,
        missing=f"; at least {len(options.missing)} more are not made yet" if options.missing else "", hidden=options.hidden, parameters=depths[0][1][0]["parameters"], updates=options.updates, samples=SAMPLES, sequence=SEQUENCE,
        seeds=options.seeds, rates=", ".join(f"{r:g}" for r in rates), bytes=seen, passes=seen / (0.9 * len(text)), runs=len(runs),
        window=max(1, options.updates // 20),
        tables="\n\n".join(table(depth, rates, results) for depth, results in depths), limits=limits()))
    (out.parent / "figures").mkdir(exist_ok=True)
    (out.parent / "figures/convergence.svg").write_text(picture(depths))


if __name__ == "__main__":
    main()
