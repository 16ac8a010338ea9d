#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/schedules.md and its pictures, docs/figures/schedules/*.svg.

usage: docs/figures/schedules.py [--check]

Everything on the page is what `penstock schedule list` and `show` (of $PENSTOCK_BINARY, else
./penstock) say. --check writes nothing and fails where the page or a picture is not what it would
write. Either way it fails where a formula of a schedule is not what the simulation shows.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True  # the source tree stays clean
import timeline
import tradeoff
import versions

FOLDER = pathlib.Path(__file__).resolve().parent
HOME = FOLDER.parent.parent
PAGE = FOLDER.parent / "schedules.md"
PICTURES = FOLDER / "schedules"
BINARY = os.environ.get("PENSTOCK_BINARY", str(HOME / "penstock"))
SAME = 1e-9  # what rounding may cost a share of the time

# The shapes of the tables: what is shown by itself, more devices, and an F that is as long as I and
# twice as long as W.
SHAPES = [{}, {"stages": 8, "microbatches": 32},
          {"microbatches": 16, "forward": 2, "backward_input": 2, "backward_weight": 1}]
# Where one backward follows four forwards: it takes as long as one of them.
SLOW_FORWARD = {"forward": 4, "backward": 1}
STEADY = 64  # microbatches that a schedule without flush runs for its steady state


def penstock(*arguments):
    done = subprocess.run([BINARY, "schedule", *arguments, "--format", "json"],
                          capture_output=True, text=True,
                          env=os.environ | {"PENSTOCK_HOME": str(HOME)})
    if done.returncode != 0:
        sys.exit(f"{done.stderr}of penstock schedule {' '.join(arguments)}")
    return json.loads(done.stdout)


def sets(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def show(row, keys):
    return penstock("show", row["name"], *sets(keys))


def keys_of(row, shape):
    """A shape of the tables as this schedule can be asked for it: without flush, with updates of
    its usual size and enough of them."""
    keys = dict(shape)
    if row["family"].startswith("whole model"):
        keys.pop("stages", None)
    if row["flush"]:
        return keys
    keys.pop("microbatches", None)
    return keys | {"batches": STEADY // show(row, keys)["microbatches"]}


def page_shapes(row):
    """What the simulation says of every shape that is not asked for twice."""
    shapes = SHAPES[:2] + [SLOW_FORWARD] if row["whole_backward"] else SHAPES
    asked = {str(keys): keys for keys in (keys_of(row, shape) for shape in shapes)}
    return [show(row, keys) | {"asked": keys} for keys in asked.values()]


# Checks --------------------------------------------------------------------------------------------


def wrong_claims(results):
    """One sentence for each formula that is not what the simulation shows."""
    for r in results:
        what = f"{r['schedule']} with {r['stages']} devices, {r['microbatches']} microbatches"
        ideal, simulated = r["ideal_bubble"], r["simulated_bubble"]
        if ideal is not None and (simulated is None or abs(ideal - simulated) > SAME):
            yield f"{what}: the formula's bubble is {ideal}, the simulated one {simulated}"
        for device, peak in zip(r["devices"], r["ideal_peak"]):
            if peak is not None and peak != device["stash_peak"]:
                yield (f"{what}: device {device['device']} holds {device['stash_peak']} "
                       f"activations, by the formula {peak}")


# The page ------------------------------------------------------------------------------------------


def escaped(words):
    return words.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def percent(share):
    return "–" if share is None else f"{100 * share + 0:.2f} %"


def numbers(values):
    """Device by device; once where all are alike."""
    words = ["–" if v is None else f"{v:g}" for v in values]
    if set(words) == {"–"}:
        return "–"
    return f"{words[0]} each" if len(words) > 1 and len(set(words)) == 1 else " ".join(words)


TIMES = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}


def shape_words(r):
    words = [f"p={r['stages']}" if r["stages"] > 1 else f"{len(r['devices'])} replicas",
             f"m={r['microbatches']}"]
    times = [f"{TIMES[key]}={value}" for key, value in r["asked"].items() if key in TIMES]
    return ", ".join(words + times)


def values_table(row, results):
    measure = {"makespan": "bubble", "longest device": "bubble of the longest device",
               "steady state": "bubble in steady state"}[row["bubble_of"]]
    header = ["shape", f"{measure}: formula", "simulated", "activations by device: formula",
              "simulated"]
    more = not row["flush"]
    rows = []
    for r in results:
        devices = r["devices"]
        cells = [shape_words(r), percent(r["ideal_bubble"]), percent(r["simulated_bubble"]),
                 numbers(r["ideal_peak"]), numbers([d["stash_peak"] for d in devices])]
        if more:
            cells += [numbers([d["weight_versions_peak"] for d in devices]),
                      numbers([d["staleness_max"] for d in devices])]
        rows.append(cells)
    return table(header + ["weight versions", "staleness"] * more, rows)


def block_words(r):
    block = r["building_block"]
    return (f"Its building block for {r['stages']} devices, with the bound of equation 1 (lifespans "
            f"over the interval, rounded up); the order above holds "
            f"{numbers([d['stash_peak'] for d in r['devices']])}.\n\n```\n{block['drawing']}```")


def facts(row):
    chunks = {"loop": "chunks in a loop", "snake": "chunks there and back",
              "mirrored": "chunks, two opposite pipelines"}[row["layout"]]
    words = []
    if row["chunks"] != "1" or row["layout"] != "loop":
        words.append(f"{row['chunks']} {chunks} (usual {row['usual_chunks']})")
    if row["splits_backward"]:
        words.append("splits B into I and W")
    if row["overlaps_pairs"]:
        words.append("overlaps F and B")
    if row["memory_limit"] is not None:
        words.append(f"`memory_limit` {row['memory_limit']:g}, in 1F1B's peak, when nothing is said")
    return "; ".join(words)


def section(row, results):
    lines = [f"### {row['name']}", "", escaped(row["when"]), "", f"- Rule: {escaped(row['rule'])}"]
    lines.append(f"- Paper: {escaped(row['paper'])}")
    if row["aliases"]:
        lines.append("- Also: " + ", ".join(f"`{alias}`" for alias in row["aliases"]))
    if facts(row):
        lines.append(f"- {facts(row)[0].upper()}{facts(row)[1:]}")
    lines.append(f"- Bubble: {escaped(row['bubble'])}")
    lines.append(f"- Stash: {escaped(row['stash'])}")
    lines += ["", f"![{row['name']}]({picture(row).relative_to(PAGE.parent)})", "",
              values_table(row, results)]
    if row["building_block"]:
        lines += ["", block_words(results[0])]
    return "\n".join(lines)


def picture(row):
    return PICTURES / f"{row['name']}.svg"


INTRODUCTION = """# Schedules

Written by `docs/figures/schedules.py` from what `penstock schedule list` and `penstock schedule
show` say; do not edit. `penstock schedule show NAME` draws any of them in the terminal, for any
shape and op times.

p devices, m microbatches per update, v chunks (virtual stages) per device; stage s, device d. F, B,
I and W are the times of a forward, a backward and its two parts, of one virtual stage. *Activations*
are those of one microbatch on one virtual stage. In the pictures F = I = W = 1 and B = 2, messages
take no time, and updates are thin black lines.

The tables put each formula beside what the simulation shows; a test fails where they differ. "–" is
no claim: the formula is for other times or numbers of microbatches. The bubble is a share of the
makespan; or, where the paper counts it so, of the time of the longest device alone from its first op
to its last; or of an update in the steady state of a schedule that never flushes.
"""

OPTIMIZER_STEPS = """
## Optimizer steps

`pipeline.optimizer_sync` says when the devices of a schedule that flushes step:

- `device` (the default, and the only one without flush): each when its own gradients are there and
  reduced. Nothing looks at all gradients.
- `global`: all together. A norm of all gradients, for clipping or to look for NaNs, is a barrier,
  which keeps the devices that are done early from beginning the next batch.
- `post-validation` (Qi et al., ICLR'24, section 4): a partial norm goes from device to device along
  the pipeline, and a device steps when its own gradients and the norm of those before are there:
  start(d) = max(own(d), start(d-1) + latency of the link). The whole norm goes back while the next
  batch warms up. The norm's message takes the latency alone (no bandwidth, behind no other message,
  nothing with `transfers: free`), and a device adds the gradients of all of its stages at once; where
  mirrored devices hold the same stages, it goes from both ends to the middle. Every replica of the pipeline has
  its own. Waiting for it counts as `gradient_reduction`.

  Assumed: no step is taken back. One that the whole norm proves wrong (clipped gradients, a NaN) is
  undone and made again, which is rare and not simulated; nor does anybody wait for the way back.
"""


# Name of the picture, schedule, what is asked for, what it shows.
VERSIONS = [("1f1b", "1f1b", {"batches": 2}, "`1f1b`: a flush, one version"),
            ("2bw", "pipedream-2bw", {"batches": 3},
             "`pipedream-2bw`: two buffers; an update writes the older one, which the microbatches in flight no longer need, and the "
             "next batch but one reads it"),
            ("pipedream", "pipedream", {"batches": 8}, "`pipedream`: a version per microbatch in flight, p - s on stage s"),
            ("pipedream-vertical-sync", "pipedream", {"batches": 8, "vertical_sync": "true"},
             "`pipedream` with `vertical_sync`: the versions of the first stage on all"),
            ("pipedream-no-stashing", "pipedream", {"batches": 8, "stashing": "none"},
             "`pipedream` with `stashing: none`: one copy; a backward uses newer weights than its forward did")]


def versions_picture(name):
    return PICTURES / f"versions-{name}.svg"


def versions_section():
    parts = ["\n## Weight versions\n", "Which weights every op uses, as `penstock schedule show NAME --versions` says it in figures: a "
             "colour\nper version, forwards light, backwards dark, with their microbatch; thin lines are updates. Below the ops\nof a "
             "device are the versions that it holds, a row for each buffer."]
    for name, _, _, words in VERSIONS:
        parts.append(f"\n{words}:\n\n![{name}]({versions_picture(name).relative_to(PAGE.parent)})")
    return "\n".join(parts)


TRADEOFF = PICTURES / "throughput-memory.svg"
TRADEOFF_WORDS = f"""
## Throughput against memory

All schedules that cut the model, doing the same work: {tradeoff.STAGES} devices, updates of {tradeoff.MICROBATCHES} microbatches, F = I = W on a device, divided
among its chunks (the usual number); updates one after the other, messages free. Memory is activations (1 GiB of a microbatch on
a device) and weight versions (1 GiB each). `torchgpipe` recomputes and keeps no more than one microbatch's; `timeprest` runs
one backward for {tradeoff.STAGES} microbatches, which takes as long as {tradeoff.STAGES}, where its order was made for one that takes as long as a forward.

![throughput against memory](figures/schedules/throughput-memory.svg)
"""


def versions_drawing(row, result):
    """The picture; what it shows as held must be what the simulation counts."""
    for d in result["devices"]:
        if versions.most_held(result, d["device"]) != d["weight_versions_peak"]:
            sys.exit(f"{row['name']}: device {d['device']} holds {d['weight_versions_peak']} versions, not what is drawn")
    return versions.drawing(row, result)


def families(rows):
    """Family -> its rows, in the order of the list."""
    found = {}
    for row in rows:
        found.setdefault(row["family"], []).append(row)
    return found


def page(rows, results):
    parts = [INTRODUCTION]
    overview = [[f"[{row['name']}](#{row['name']})", escaped(row["rule"]), escaped(row["bubble"]),
                 escaped(row["stash"]), row["chunks"]] for row in rows]
    parts.append(table(["schedule", "rule", "bubble", "stash at stage s", "chunks"], overview))
    parts.append(OPTIMIZER_STEPS.rstrip("\n"))
    parts += [versions_section(), TRADEOFF_WORDS.rstrip("\n")]
    for family, members in families(rows).items():
        parts.append(f"\n## {family[0].upper()}{family[1:]}\n")
        parts.append("\n\n".join(section(row, results[row["name"]]) for row in members))
    return "\n".join(parts) + "\n"


def main():
    rows = penstock("list")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = dict(zip((row["name"] for row in rows), pool.map(page_shapes, rows)))
        pictures = pool.map(lambda row: timeline.drawing(row, show(row, {})), rows)
        wanted = dict(zip(map(picture, rows), pictures))
        by_name = {row["name"]: row for row in rows}
        for name, schedule, keys, _ in VERSIONS:
            row = by_name[schedule]
            wanted[versions_picture(name)] = versions_drawing(row, show(row, keys))
        cut = [row for row in rows if not row["family"].startswith("whole model")]
        wanted[TRADEOFF] = tradeoff.drawing(list(pool.map(lambda row: tradeoff.point(row, HOME, BINARY), cut)))
    wanted[PAGE] = page(rows, results)
    wrong = [claim for of_one in results.values() for claim in wrong_claims(of_one)]
    stale = [path for path, content in wanted.items()
             if not path.exists() or path.read_text() != content]
    left_over = set(PICTURES.glob("*")) - set(wanted)
    if "--check" in sys.argv[1:]:
        wrong += [f"{path.relative_to(HOME)} is not what docs/figures/schedules.py writes"
                  for path in stale]
        wrong += [f"{path.relative_to(HOME)} is of no schedule" for path in sorted(left_over)]
    else:
        PICTURES.mkdir(exist_ok=True)
        for path in stale:
            path.write_text(wanted[path])
        for path in left_over:
            path.unlink()
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
