# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG text: panels with axes, lines with markers, labels that keep clear of each other.

Series differ by marker and dash, too, so that they can be told apart in grey.
"""
import html
import math

FONT = 'font-family="Helvetica, Arial, sans-serif"'
# Dark to light: also in grey one after the other.
STYLES = [("#000000", "", "circle"), ("#0b5cad", "7 3", "square"), ("#c2571a", "2 3", "triangle"),
          ("#7d7d7d", "10 3 2 3", "diamond")]


def number(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text(x, y, words, size=12, anchor="start", bold=False, rotate=None, color="#222"):
    turn = f' transform="rotate({rotate} {number(x)} {number(y)})"' if rotate is not None else ""
    weight = ' font-weight="bold"' if bold else ""
    return (f'<text x="{number(x)}" y="{number(y)}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{color}"{weight}{turn}>{html.escape(words)}</text>')


def line(x1, y1, x2, y2, color="#222", width=1, dash=""):
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" '
            f'stroke="{color}" stroke-width="{width}"{dashed}/>')


def marker(x, y, shape, color, filled=True, size=4.5):
    look = f'fill="{color if filled else "white"}" stroke="{color}" stroke-width="1.5"'
    if shape == "circle":
        return f'<circle cx="{number(x)}" cy="{number(y)}" r="{size}" {look}/>'
    s = size
    corners = {"square": [(-s, -s), (s, -s), (s, s), (-s, s)],
               "triangle": [(0, -1.2 * s), (1.2 * s, s), (-1.2 * s, s)],
               "diamond": [(0, -1.3 * s), (1.3 * s, 0), (0, 1.3 * s), (-1.3 * s, 0)]}[shape]
    points = " ".join(f"{number(x + dx)},{number(y + dy)}" for dx, dy in corners)
    return f'<polygon points="{points}" {look}/>'


def spread(wanted, gap):
    """Places as near to the wanted ones as a gap between any two allows, in the same order."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups = []  # [members, their common middle]
    for i in order:
        groups.append([[i], wanted[i]])
        while len(groups) > 1:
            (a, middle_a), (b, middle_b) = groups[-2:]
            if middle_b - middle_a >= gap * (len(a) + len(b)) / 2:
                break
            members = a + b
            groups[-2:] = [[members, sum(wanted[m] for m in members) / len(members)]]
    places = [0.0] * len(wanted)
    for members, middle in groups:
        for k, i in enumerate(members):
            places[i] = middle + (k - (len(members) - 1) / 2) * gap
    return places


class Panel:
    """A rectangle of the figure with two axes; what is added is drawn in order."""

    def __init__(self, left, top, width, height, x_range, y_range, log_x=False):
        self.left, self.top, self.width, self.height = left, top, width, height
        self.x_range, self.y_range, self.log_x = x_range, y_range, log_x
        self.parts = []

    def x(self, value):
        low, high = self.x_range
        if self.log_x:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.left + (value - low) / (high - low) * self.width

    def y(self, value):
        low, high = self.y_range
        return self.top + self.height - (value - low) / (high - low) * self.height

    def add(self, *parts):
        self.parts += parts

    def axes(self, title, x_label, y_label, x_ticks, y_ticks, unit=""):
        """Ticks are (value, words); a grid line for each of y."""
        bottom, right = self.top + self.height, self.left + self.width
        for value, words in y_ticks:
            self.add(line(self.left, self.y(value), right, self.y(value), "#ddd"),
                     text(self.left - 6, self.y(value) + 4, words + unit, 11, "end"))
        for value, words in x_ticks:
            self.add(line(self.x(value), bottom, self.x(value), bottom + 4),
                     text(self.x(value), bottom + 17, words, 11, "middle"))
        self.add(line(self.left, bottom, right, bottom), line(self.left, self.top, self.left, bottom),
                 text(self.left, self.top - 12, title, 12.5, bold=True),
                 text(self.left + self.width / 2, bottom + 35, x_label, 12, "middle"))
        if y_label:
            middle = self.top + self.height / 2
            self.add(text(self.left - 44, middle, y_label, 12, "middle", rotate=-90))

    def series(self, points, style, filled=True, width=1.8):
        color, dash, shape = style
        path = " ".join(f"{number(self.x(x))},{number(self.y(y))}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<polyline points="{path}" fill="none" stroke="{color}" '
                 f'stroke-width="{width}"{dashed}/>')
        self.add(*(marker(self.x(x), self.y(y), shape, color, filled) for x, y in points))


def legend(left, top, entries, step, line_too=True):
    """Entries (words, style, filled) side by side, `step` apart."""
    parts = []
    for k, (words, (color, dash, shape), filled) in enumerate(entries):
        x = left + k * step
        if line_too:
            parts.append(line(x, top, x + 34, top, color, 1.8, dash))
        parts += [marker(x + 17, top, shape, color, filled), text(x + 41, top + 4, words)]
    return parts


def figure(width, height, title, *groups):
    """The whole file; `title` is what a reader who does not see it is told."""
    body = "\n".join(part for group in groups for part in group)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" {FONT}>\n'
            f"<title>{html.escape(title)}</title>\n"
            f'<rect width="{width}" height="{height}" fill="white"/>\n{body}\n</svg>\n')
