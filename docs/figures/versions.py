# SPDX-License-Identifier: Apache-2.0
"""Which weights every op uses, and how long a device holds them, as SVG text.

A row per device: ops in the colour of their weight version (F light, backwards dark) with their microbatch, and below
them a bar for each version that the device holds, from the update that made it until nobody needs it.
"""
import html

import svg
import timeline

COLOURS = [("#c6dbef", "#6baed6"), ("#fdd0a2", "#e6843a"), ("#c7e9c0", "#5aae61"), ("#dadaeb", "#9e9ac8"), ("#f7c6d9", "#d6618f"),
           ("#fbeaa0", "#d4b13f"), ("#c9eae6", "#45a69b"), ("#dcdcdc", "#9a9a9a")]
BAR, LEFT, TOP, UNIT = 9, 62, 12, 17


def held(result, device, made):
    """(version, from, until, lane) of a device whose updates are made at these times; lane: which buffer."""
    events = [e for e in result["events"] if e["device"] == device]
    end, free, bars = result["makespan_s"], [], []
    for version, start in enumerate([0, *made]):
        used = [e["end_s"] for e in events if e["weight_version"] == version]
        next_one = made[version] if version < len(made) else end
        until = max(used + [next_one])
        lane = next((i for i, busy in enumerate(free) if busy <= start), len(free))
        free[lane:lane + 1] = [until]
        bars.append((version, start, until, lane))
    return bars


def updates(result, device):
    """When a device's updates are made: as its batch's last backward ends."""
    backwards = sorted(e["end_s"] for e in result["events"]
                       if e["device"] == device and timeline.Cell(0, 0, 0, e["op"]).kind in "BW")
    each = len(backwards) // result["batches"]
    return backwards[each - 1::each]


def drawing(row, result):
    versions = max(d["weight_versions_peak"] for d in result["devices"])
    high = timeline.ROW + versions * BAR + 8
    end = result["makespan_s"]
    parts, by_event = [], {(e["device"], e["op"]): e["weight_version"] for e in result["events"]}
    for d in range(len(result["devices"])):
        parts.append(svg.text(LEFT - 8, TOP + d * high + 14, f"device {d}", 11, "end"))
        made = updates(result, d)
        for version, start, until, lane in held(result, d, made):
            y = TOP + d * high + timeline.ROW + 2 + lane * BAR
            parts.append(f'<rect x="{svg.number(LEFT + start * UNIT)}" y="{y}" width="{svg.number((until - start) * UNIT - 1)}" '
                         f'height="{BAR - 2}" fill="{COLOURS[version % 8][1]}"/>')
            if (until - start) * UNIT > 40:
                parts.append(svg.text(LEFT + start * UNIT + 3, y + 6.5, f"version {version}", 7, color="#000"))
        for time in made:
            x = LEFT + time * UNIT
            parts.append(svg.line(x, TOP + d * high - 2, x, TOP + d * high + timeline.ROW + 2, "#000", 1.5))
    for e in result["events"]:
        cell = timeline.Cell(e["device"], e["start_s"], e["end_s"], e["op"])
        fill = COLOURS[by_event[e["device"], e["op"]] % 8][0 if cell.kind == "F" else 1]
        x, y, wide = LEFT + cell.start * UNIT, TOP + cell.device * high, (cell.end - cell.start) * UNIT
        parts.append(f'<rect x="{svg.number(x)}" y="{y}" width="{svg.number(wide)}" height="{timeline.ROW}" fill="{fill}" stroke="white"/>')
        parts.append(svg.text(x + wide / 2, y + 14, cell.number, 10, "middle"))
    title = f"{row['name']}: the weight version of every op, {result['stages']} devices, {result['microbatches']} microbatches per update"
    wide = svg.number(LEFT + end * UNIT + 14)
    return svg.figure(wide, TOP + len(result["devices"]) * high + 4, html.unescape(title), parts)


def most_held(result, device):
    """How many versions the picture shows at once."""
    return 1 + max(lane for *_, lane in held(result, device, updates(result, device)))
