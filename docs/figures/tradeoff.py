# SPDX-License-Identifier: Apache-2.0
"""Throughput against memory of all schedules at equal work: the points, their table and the picture as SVG text."""
import json
import os
import subprocess
import sys

import svg

STAGES, MICROBATCHES = 8, 32
# Of a device's share of the model, so that a schedule with chunks does the same work.
SCENARIO = {"model": {"forward": "1 s", "backward_input": "1 s", "backward_weight": "1 s", "activation": "1 GiB", "parameters": "1 GiB"},
            "cluster": {"devices": STAGES, "link": {"latency": "0 s"}}, "transfers": "free"}
IDEAL = 3.0  # seconds of a microbatch on a device
MARKS = {"flush": ("#0b5cad", "circle"), "no flush": ("#c2571a", "square")}


def point(row, home, binary):
    """Share of the ideal throughput, GiB of the fullest device, weight versions."""
    pipeline = {"stages": STAGES, "chunks": row["usual_chunks"], "microbatches": MICROBATCHES}
    scenario = SCENARIO | {"schedule": row["name"], "pipeline": pipeline, "batches": 4 if row["flush"] else 8}
    if row["name"] == "pipedream":
        pipeline["microbatches"], scenario["batches"] = 1, 8 * MICROBATCHES
    if row["whole_backward"]:  # one backward of a whole minibatch
        pipeline["microbatches"] = STAGES
        scenario["batches"] = 8 * MICROBATCHES // STAGES
    done = subprocess.run([binary, "simulate", "-", "--engine", "exact", "--format", "json"], input=json.dumps(scenario), capture_output=True, text=True,
                          env=os.environ | {"PENSTOCK_HOME": str(home)})
    if done.returncode != 0:
        sys.exit(f"{row['name']}: {done.stderr}")
    r = json.loads(done.stdout)
    return {"name": row["name"], "flush": row["flush"], "share": r["throughput_microbatches_per_s"] * IDEAL,
            "gib": max(d["peak_memory_bytes"] for d in r["devices"]) / 2**30,
            "versions": max(d["weight_versions_peak"] for d in r["devices"])}


def drawing(points):
    most = max(p["gib"] for p in points)
    panel = svg.Panel(70, 36, 700, 420, (0, 5 * (most // 5 + 1)), (0, 1.05))
    panel.axes(f"{STAGES} devices, {MICROBATCHES} microbatches, F = I = W", "memory of the fullest device, GiB (a microbatch's "
               "activations: 1; a weight version: 1)", "throughput, share of the ideal",
               [(x, str(x)) for x in range(0, int(5 * (most // 5 + 1)) + 1, 5)], [(y / 5, f"{100 * y // 5}") for y in range(6)], " %")
    together = {}
    for p in points:
        together.setdefault((round(p["gib"], 2), round(p["share"], 3), p["flush"]), []).append(p)
    y = 0
    for gib, share, flush in sorted(together, key=lambda at: (-at[1], at[0])):
        y = max(panel.y(share), y + 13, panel.top)
        members = together[gib, share, flush]
        colour, shape = MARKS["flush" if flush else "no flush"]
        panel.add(svg.marker(panel.x(gib), panel.y(share), shape, colour, size=4),
                  svg.line(panel.x(gib) + 5, panel.y(share), 812, y, "#bbb", 0.7),
                  svg.text(815, y + 4, ", ".join(p["name"] for p in members), 10))
    keys = [(words, (colour, "", shape), True) for words, (colour, shape) in MARKS.items()]
    return svg.figure(1130, 510, "Throughput against memory of all schedules", panel.parts, svg.legend(480, 20, keys, 120, False))
