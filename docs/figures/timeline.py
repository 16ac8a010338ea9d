# SPDX-License-Identifier: Apache-2.0
"""Timelines of schedules as SVG text: a row per device, a cell per op.

F is blue, B green, I teal, W yellow; the stages of a device differ in shade. Cells of a colour
are one path, so that the files stay small.
"""
import html
import re

import svg

SHADES = {"F": ["#a9cdf2", "#4f8fd6", "#d5e7fa", "#2c69ad"],
          "B": ["#a8dcb0", "#55ad66", "#d5f0d9", "#2f8443"],
          "I": ["#a3dcd6", "#3fa79c", "#d2f0ec", "#22796f"],
          "W": ["#f7dc8c", "#dba735", "#fcf0c8", "#b5831a"]}
DARK = {"#2c69ad", "#2f8443", "#22796f"}  # white figures on these
ROW, GAP, LEFT, TOP, MOST_WIDE = 20, 5, 62, 12, 840


class Cell:
    def __init__(self, device, start, end, op):
        stage, kind, number = re.fullmatch(r"(\d+)([A-Z_]+?)(\d*)", op).groups()
        self.device, self.start, self.end = device, start, end
        self.stage, self.kind, self.number = int(stage), kind, number
        self.top, self.height = 0, ROW
        self.shade = 0


def cells_of(row, result):
    cells = [Cell(e["device"], e["start_s"], e["end_s"], e["op"]) for e in result["events"]]
    devices = {d["device"]: d for d in result["devices"]}
    for cell in cells:
        stages = devices[cell.device]["stages"]
        cell.shade = stages.index(cell.stage) if row["layout"] != "mirrored" else int(
            cell.stage != min(stages, key=lambda s: abs(s - cell.device)))
    halve_pairs(cells)
    return cells


def halve_pairs(cells):
    """An F and a B that run together are the upper and the lower half of a cell."""
    at = {}
    for cell in cells:
        at.setdefault((cell.device, cell.start, cell.end), []).append(cell)
    for together in at.values():
        if len(together) == 2:
            for half, cell in enumerate(together):
                cell.top, cell.height = half * ROW / 2, ROW / 2


def updates_of(row, result, cells):
    """(device, time) of every update but the last, where the pipeline does not drain for it."""
    marks = []
    if row["flush"]:
        return marks
    for device in {cell.device for cell in cells}:
        backwards = [c for c in cells if c.device == device and c.kind in "BW"]
        each = len(backwards) // result["batches"]
        marks += [(device, backwards[i].end) for i in range(each - 1, len(backwards) - 1, each)]
    return marks


def box(cell, unit):
    x, width = cell.start * unit, (cell.end - cell.start) * unit
    y = cell.device * (ROW + GAP) + cell.top
    return f"M{svg.number(x)} {svg.number(y)}h{svg.number(width)}v{svg.number(cell.height)}h{svg.number(-width)}z"


def figures(cell, unit):
    """The microbatch in its cell, if it fits."""
    size = 10 if cell.height == ROW else 8.5
    room = (cell.end - cell.start) * unit
    if len(cell.number) * size * 0.58 > room - 1:
        return ""
    x = (cell.start + cell.end) / 2 * unit
    y = cell.device * (ROW + GAP) + cell.top + cell.height / 2 + size * 0.36
    small = "" if cell.height == ROW else f' font-size="{size}"'
    return f'<text x="{svg.number(x)}" y="{svg.number(y)}"{small}>{cell.number}</text>'


def colour_of(cell):
    shades = SHADES.get(cell.kind, ["#555"])
    return shades[cell.shade % len(shades)]


def legend(row, cells, top):
    kinds = [kind for kind in "FBIW" if any(c.kind == kind for c in cells)]
    shades = sorted({c.shade for c in cells})
    parts, x = [], LEFT
    for kind in kinds:
        for shade in shades:
            parts.append(f'<rect x="{x}" y="{top}" width="14" height="12" '
                         f'fill="{SHADES[kind][shade % 4]}"/>')
            x += 15
        parts.append(svg.text(x + 4, top + 10, kind, 11))
        x += 26
    if len(shades) > 1:
        words = ("dark: microbatches from the last device to the first" if row["layout"] == "mirrored"
                 else "first chunk light, second dark" + (", ..." if len(shades) > 2 else ""))
        parts.append(svg.text(x + 6, top + 10, words, 11))
    return parts


def drawing(row, result):
    """The picture of a result of `schedule show`."""
    cells = cells_of(row, result)
    end = max(cell.end for cell in cells)
    unit = min(16, MOST_WIDE / end)
    count = len(result["devices"])
    height, bottom = count * (ROW + GAP), TOP + count * (ROW + GAP)
    parts = [svg.text(LEFT - 8, TOP + d * (ROW + GAP) + 14, f"device {d}", 11, "end")
             for d in range(count)]
    parts.append(f'<g transform="translate({LEFT} {TOP})">')
    parts += [svg.line(0, d * (ROW + GAP) + ROW / 2, end * unit, d * (ROW + GAP) + ROW / 2, "#ccc")
              for d in range(count)]
    colours = {}
    for cell in cells:
        colours.setdefault(colour_of(cell), []).append(cell)
    for colour, alike in colours.items():
        parts.append(f'<path fill="{colour}" stroke="white" d="{"".join(box(c, unit) for c in alike)}"/>')
    for ink, dark in (("#222", False), ("white", True)):
        words = [figures(c, unit) for c in cells if (colour_of(c) in DARK) == dark]
        if any(words):
            parts.append(f'<g font-size="10" text-anchor="middle" fill="{ink}">{"".join(words)}</g>')
    for device, time in updates_of(row, result, cells):
        y = device * (ROW + GAP) - 2
        parts.append(svg.line(time * unit, y, time * unit, y + ROW + 4, "#000", 1.5))
    parts.append("</g>")
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if end / step <= 15)
    for time in range(0, int(end) + 1, every):
        x = LEFT + time * unit
        parts += [svg.line(x, bottom - 2, x, bottom + 2, "#888"),
                  svg.text(x, bottom + 13, str(time), 10, "middle", color="#555")]
    parts += legend(row, cells, bottom + 22)
    wide = max(LEFT + end * unit + 14, 620 if row["layout"] == "mirrored" else 480)
    title = f"{row['name']}: {result['stages']} devices, {result['microbatches']} microbatches"
    return svg.figure(svg.number(wide), height + TOP + 42, html.unescape(title), parts)
