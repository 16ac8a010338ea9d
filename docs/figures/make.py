#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the figures of docs/contention.md and the tables beside them: docs/figures/*.svg.

usage: docs/figures/make.py [--check]

Runs `penstock simulate` (of $PENSTOCK_BINARY, else ./penstock) on the scenarios below; --check
writes nothing and fails where a figure or a table is not what it would write.
"""
import concurrent.futures
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # the source tree stays clean
import svg

FOLDER = pathlib.Path(__file__).resolve().parent
HOME = FOLDER.parent.parent
PAGE = FOLDER.parent / "contention.md"
BINARY = os.environ.get("PENSTOCK_BINARY", str(HOME / "penstock"))


def simulate(scenario):
    """The result of a scenario given as YAML text."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(scenario)
        file.flush()
        done = subprocess.run([BINARY, "simulate", file.name, "--format", "json", "--reproducible"],
                              capture_output=True, text=True,
                              env=os.environ | {"PENSTOCK_HOME": str(HOME)})
    if done.returncode != 0:
        sys.exit(f"{done.stderr}\nof the scenario\n{scenario}")
    result = json.loads(done.stdout)
    if not result["feasible"]:
        sys.exit(f"{result['infeasible_because'][0]}\nin the scenario\n{scenario}")
    return result


def simulate_all(scenarios):
    """{key: scenario} -> {key: result}, two at a time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(scenarios, pool.map(simulate, scenarios.values())))


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


# Where sharing turns the ranking -------------------------------------------------------------------

RANKED = ["pipedream-2bw", "dapple-pb", "gpipe", "1f1b"]
STYLE_OF = dict(zip(RANKED, (svg.STYLES[i] for i in (2, 3, 1, 0))))
NIC_GBPS = [2.5, 5, 10, 25, 50, 100]


def private_links(gbps):
    """The sixteen GPUs of azure-nc24v3, a link of their own between every two: 12 GB/s within a
    server, else a NIC's bandwidth."""
    edges = []
    for a, b in itertools.combinations(range(16), 2):
        same = a // 4 == b // 4
        edges.append(f"{{between: [{a}, {b}], " + (
            "bandwidth: 12 GB/s, latency: 5 us}" if same else
            f"bandwidth: {gbps} Gbps, latency: 50 us}}"))
    return f"{{devices: 16, device: V100-PCIe, network: [{', '.join(edges)}]}}"


def ranked_scenario(schedule, links, gbps):
    cluster = private_links(gbps) if links == "private" else (
        f"{{base: azure-nc24v3, inter: {gbps} Gbps}}")
    batches = 10 if schedule == "pipedream-2bw" else 3
    return (f"model: gpt-1.3b\nstack: none\ncluster: {cluster}\nschedule: {schedule}\nbatches: {batches}\n"
            "pipeline: {stages: 4, width: 4, split: balanced, microbatch_size: 2, "
            "microbatches: 16, recompute: full}\n")


def slopes(rate):
    panel = svg.Panel(160, 60, 170, 300, (0, 1), (75, 116))
    for side in (0, 1):
        panel.add(svg.line(panel.x(side), panel.top, panel.x(side), panel.top + panel.height,
                           "#999"))
        words = ("private links", "shared links")[side]
        panel.add(svg.text(panel.x(side), panel.top + panel.height + 20, words, 12, "middle"))
    for schedule in RANKED:
        panel.series([(0, rate[schedule, "private", 10]), (1, rate[schedule, "shared", 10])],
                     STYLE_OF[schedule])
    for side, links in enumerate(("private", "shared")):
        values = [rate[s, links, 10] for s in RANKED]
        for schedule, value, y in zip(RANKED, values, svg.spread([panel.y(v) for v in values], 16)):
            anchor, shift = ("end", -12) if side == 0 else ("start", 12)
            panel.add(svg.text(panel.x(side) + shift, y + 4, f"{schedule} {value:.1f}", 12, anchor))
    panel.add(svg.text(panel.left, panel.top - 12, "Samples/s, NICs of 10 Gbps", 12.5, bold=True))
    return panel.parts


def against_gpipe(rate):
    panel = svg.Panel(560, 60, 330, 300, (2.2, 115), (70, 120), log_x=True)
    panel.axes("Samples/s relative to gpipe", "bandwidth of a server's NIC, Gbps", "",
               [(g, svg.number(g)) for g in NIC_GBPS], [(v, f"{v}") for v in range(70, 121, 10)],
               " %")
    panel.add(svg.line(panel.left, panel.y(100), panel.left + panel.width, panel.y(100), "#444", 1.4))
    for schedule in RANKED:
        if schedule == "gpipe":
            continue
        color, dash, shape = STYLE_OF[schedule]
        for links, filled in (("private", False), ("shared", True)):
            points = [(g, 100 * rate[schedule, links, g] / rate["gpipe", links, g])
                      for g in NIC_GBPS]
            panel.series(points, (color, "" if filled else "3 3", shape), filled,
                         2.0 if filled else 1.2)
    return panel.parts


def ranking():
    keys = {(s, links, g) for s in RANKED for links in ("private", "shared") for g in NIC_GBPS}
    results = simulate_all({k: ranked_scenario(*k) for k in sorted(keys)})
    rate = {k: r["throughput_samples_per_s"] for k, r in results.items()}
    entries = [(f"{s}, shared", (STYLE_OF[s][0], "", STYLE_OF[s][2]), True)
               for s in RANKED if s != "gpipe"]
    private = [(f"{s}, private", (STYLE_OF[s][0], "3 3", STYLE_OF[s][2]), False)
               for s in RANKED if s != "gpipe"]
    image = svg.figure(920, 470, "Ranking of schedules with private and with shared links",
                       slopes(rate), against_gpipe(rate),
                       svg.legend(330, 428, entries, 200), svg.legend(330, 452, private, 200))
    rows = []
    for links in ("private", "shared"):
        for s in RANKED:
            r = results[s, links, 10]
            rows.append([links, s] + [f"{rate[s, links, g]:.1f}" for g in NIC_GBPS] +
                        [f"{100 * r['bubble']['transfer_wait']:.1f} %"])
    header = ["links", "schedule"] + [f"{svg.number(g)} Gbps" for g in NIC_GBPS]
    return image, markdown(header + ["waiting for transfers, 10 Gbps"], rows)


# Bubble against oversubscription -------------------------------------------------------------------

OVERSUBSCRIPTIONS = [1, 2, 4, 8]
# GPU g of server v is 4 v + g; servers 0 to 3 are in one rack. Placements name the GPUs of stage 0's
# four replicas, then of stage 1's, and so on.
ALTERNATING = [4 * server + g for server in (0, 4, 1, 5, 2, 6, 3, 7) for g in range(4)]
HALVES = [4 * server + 2 * (stage % 2) + g
          for stage in range(8) for server in (stage // 2, stage // 2 + 4) for g in range(2)]
LAYOUTS = {
    "One hop crosses": "placement: fill-node",
    "Every hop crosses": f"placement: {ALTERNATING}",
    "Gradients cross": f"placement: {HALVES}, reduction: {{algorithm: hierarchical}}",
}


def rack_scenario(schedule, layout, oversubscription):
    return ("model: gpt-1.3b\nstack: none\ncluster: {base: ethernet-two-racks, fabric: {topology: fat-tree, "
            f"leaf: 4, oversubscription: {oversubscription}, link: {{latency: 1 us}}}}}}\n"
            f"schedule: {schedule}\nbatches: 8\n"
            "pipeline: {stages: 8, width: 4, split: balanced, microbatch_size: 2, microbatches: 32, "
            f"recompute: full, {LAYOUTS[layout]}}}\n")


def oversubscription():
    keys = itertools.product(RANKED, LAYOUTS, OVERSUBSCRIPTIONS)
    results = simulate_all({k: rack_scenario(*k) for k in keys})
    bubble = {k: 100 * r["bubble_fraction"] for k, r in results.items()}
    panels = []
    for i, layout in enumerate(LAYOUTS):
        panel = svg.Panel(70 + 285 * i, 50, 240, 260, (0.85, 9.4), (30, 90), log_x=True)
        panel.axes(layout, "oversubscription of the racks", "bubble, share of the time" if i == 0
                   else "", [(o, f"{o}:1") for o in OVERSUBSCRIPTIONS],
                   [(v, f"{v}") for v in range(30, 91, 10)], " %")
        for schedule in RANKED:
            panel.series([(o, bubble[schedule, layout, o]) for o in OVERSUBSCRIPTIONS],
                         STYLE_OF[schedule])
        panels.append(panel.parts)
    entries = [(s, STYLE_OF[s], True) for s in RANKED]
    image = svg.figure(920, 400, "Bubble against oversubscription", *panels,
                       svg.legend(190, 380, entries, 150))
    rows = [[layout.lower(), s] + [f"{bubble[s, layout, o]:.1f} %" for o in OVERSUBSCRIPTIONS]
            for layout in LAYOUTS for s in RANKED]
    return image, markdown(["layout", "schedule"] + [f"{o}:1" for o in OVERSUBSCRIPTIONS], rows)


# A slow device -------------------------------------------------------------------------------------

ALL = ["model-parallel", "gpipe", "gpipe-fifo", "1f1b", "dapple-pb", "pipedream-2bw", "pipedream"]
PLACES = {"first": 0, "middle": 3, "last": 7}
SPLITS = {"even": "Even split: four layers each", "balanced": "Balanced split: 5 4 4 4 4 4 4 3"}


def slow_scenario(schedule, split, place):
    microbatches, batches = (1, 96) if schedule == "pipedream" else (16, 6)
    return (f"model: gpt-2.2b\nstack: none\ncluster: p4d.24xlarge\nschedule: {schedule}\nbatches: {batches}\n"
            f"pipeline: {{stages: 8, split: {split}, microbatch_size: 4, "
            f"microbatches: {microbatches}, recompute: full}}\n"
            f"perturbations: {{slow_devices: [{{device: {PLACES[place]}, factor: 1.1}}]}}\n")


def slow_device():
    results = simulate_all({k: slow_scenario(*k) for k in itertools.product(ALL, SPLITS, PLACES)})
    cost = {}
    for key, r in results.items():
        before, after = (r["perturbations"][which]["iteration_time_s"]
                         for which in ("undisturbed", "disturbed"))
        cost[key] = round(100 * (after / before - 1), 3) + 0.0  # never -0
    styles = dict(zip(PLACES, (("#000000", "", "circle"), ("#7d7d7d", "", "diamond"),
                               ("#c2571a", "", "square"))))
    panels = []
    for i, (split, title) in enumerate(SPLITS.items()):
        panel = svg.Panel(130 + 395 * i, 70, 350, 280, (-0.5, 10.8), (-0.6, len(ALL) - 0.4))
        panel.axes("", "update takes longer by", "", [(v, f"{v} %") for v in range(0, 11, 2)],
                   [])
        panel.add(svg.text(panel.left, panel.top - 28, title, 12.5, bold=True))
        for v in (1.25, 10):
            panel.add(svg.line(panel.x(v), panel.top, panel.x(v), panel.top + panel.height, "#999",
                               1, "4 3"))
            words = {1.25: "10 % / 8", 10: "10 %"}[v]
            panel.add(svg.text(panel.x(v), panel.top - 5, words, 10.5, "middle", color="#666"))
        for row, schedule in enumerate(reversed(ALL)):
            y = panel.y(row)
            panel.add(svg.line(panel.left, y, panel.left + panel.width, y, "#ddd"))
            if i == 0:
                panel.add(svg.text(panel.left - 8, y + 4, schedule, 12, "end"))
            for shift, place in zip((-7, 0, 7), PLACES):
                color, _, shape = styles[place]
                panel.add(svg.marker(panel.x(cost[schedule, split, place]), y + shift, shape, color,
                                     place != "first", 4))
        panels.append(panel.parts)
    entries = [(f"the {place} device is slow", styles[place], place != "first")
               for place in PLACES]
    image = svg.figure(900, 440, "What a slow device costs", *panels,
                       svg.legend(150, 422, entries, 230, line_too=False))
    rows = [[s] + [f"{cost[s, split, place]:.1f} %" for split in SPLITS for place in PLACES]
            for s in ALL]
    header = ["schedule"] + [f"{split}: {place}" for split in SPLITS for place in PLACES]
    return image, markdown(header, rows)


# ---------------------------------------------------------------------------------------------------

FIGURES = {"ranking": ranking, "oversubscription": oversubscription, "slow-device": slow_device}


def with_table(page, name, table):
    """The page with the table between its markers."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, rest = page.split(begin)
    return before + begin + "\n\n" + table + "\n\n" + end + rest.split(end)[1]


def main():
    wanted, page = {}, PAGE.read_text()
    for name, make in FIGURES.items():
        wanted[FOLDER / f"{name}.svg"], table = make()
        page = with_table(page, name, table)
    wanted[PAGE] = page
    stale = [path for path, content in wanted.items()
             if not path.exists() or path.read_text() != content]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(HOME)} is not what docs/figures/make.py writes")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
