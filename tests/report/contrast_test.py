#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports can be read, dark and light: the contrast (WCAG 2.1) of texts with what they stand on is at least 4.5:1, that
of what charts draw with their paper at least 3:1. From the style sheet and the scripts of the page; needs
$PENSTOCK_SOURCE."""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
PAGE, PLAYGROUND = SOURCE / "report" / "page", SOURCE / "playground"
TEXT, GRAPHICS = 4.5, 3
TEXTS = ("ink", "faint", "good", "bad", "F")  # F: links
DRAWN = ("F", "B", "I", "W", "R", "S", "recompute", "message", "front", "good", "bad", "focus")
BARS = ("F", "B", "I", "W", "R", "S")  # microbatches stand on them


def variables(selector, style=PAGE / "page.css"):
    style = style.read_text()
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", re.search(re.escape(selector) + r" \{(.*?)\}", style, re.S)[1]))


def colours(name, text):
    return re.findall(r"#[0-9a-f]{6}", re.search(rf"\b{name} =\s*\[(.*?)\]", text, re.S)[1])


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def script(file):
    return (PAGE / file).read_text()


def number(name, text):
    return float(re.search(rf"\b{name} = ([\d.]+)", text)[1])


def inks_change(text):
    """The luminance from which on inkOn is black."""
    return float(re.search(r"blue > ([\d.]+) \?", text)[1])


def ink_on(colour):
    limit = inks_change(script("chart.js"))
    return "#000000" if luminance(colour) > limit else "#ffffff"


def mixed(one, other, share):
    parts = [[int(c[i:i + 2], 16) for i in (1, 3, 5)] for c in (one, other)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*parts))


class Contrasts:
    def check(self, colour, on, least, name):
        on = self.is_.get(on, on)
        self.assertGreaterEqual(contrast(colour, on), least, f"{name} {colour} on {on}")

    def test_texts(self):
        for name in TEXTS:
            for on in ("paper", "card"):
                self.check(self.is_[name], on, TEXT, name)
        self.check(self.is_["on-F"], "F", TEXT, "of buttons")

    def test_numbers_on_bars(self):
        pale = number("PALE", script("timeline.js"))
        for name in BARS:
            for bar in (self.is_[name], mixed(self.is_["idle"], self.is_[name], pale)):
                self.check(ink_on(bar), bar, TEXT, f"a number on {name}")

    def test_numbers_on_the_cells_of_heat_maps(self):
        for one, other in zip(self.ramp, self.ramp[1:]):
            for share in (0, 0.25, 0.5, 0.75, 1):
                cell = mixed(one, other, share)
                self.check(ink_on(cell), cell, TEXT, "a number")

    def test_what_charts_draw(self):
        for name in DRAWN:
            self.check(self.is_[name], "paper", GRAPHICS, name)
        for name in BARS:  # of a lane, beside its idle time
            self.check(self.is_[name], "idle", GRAPHICS, name)

    def test_colours_of_many(self):
        self.assertGreater(len(self.ramp), 4)
        for colour in self.few + self.ramp:
            self.check(colour, "paper", GRAPHICS, "a line")
        # What lies between two of them is no nearer to the paper than they are.
        self.assertEqual(self.ramp, sorted(self.ramp, key=luminance))


class Dark(Contrasts, unittest.TestCase):
    def setUp(self):
        text = script("chart.js")
        self.is_ = variables(":root") | variables(":root[data-theme=dark]")
        self.few = colours("OKABE_ITO", text)
        self.ramp = colours("VIRIDIS", text)[int(number("VIRIDIS_ON_DARK", text)):]


class Light(Contrasts, unittest.TestCase):
    def setUp(self):
        text = script("chart.js")
        self.is_ = variables(":root")
        self.few = colours("OKABE_ITO_ON_LIGHT", text)
        self.ramp = colours("VIRIDIS", text)[:int(number("VIRIDIS_ON_LIGHT", text))]

    def test_what_is_recomputed_of_a_backward(self):
        for name in ("B", "I"):
            self.check(self.is_["recompute"], name, GRAPHICS, "recompute")


class Measure(unittest.TestCase):
    def test_the_measure(self):
        self.assertAlmostEqual(contrast("#fff", "#000000"), 21)
        self.assertAlmostEqual(contrast("#777", "#ffffff"), 4.48, 2)


class Playground(unittest.TestCase):
    def test_draws_as_reports_do(self):
        for own, of_reports in ((":root", ":root"), ("  :root", ":root[data-theme=dark]")):
            drawn, expected = variables(own, PLAYGROUND / "page.css"), variables(":root") | variables(of_reports)
            self.assertEqual({name: drawn[name] for name in (*BARS, "idle")},
                             {name: expected[name] for name in (*BARS, "idle")}, own)
        text = (PLAYGROUND / "page.js").read_text()
        self.assertEqual(inks_change(text), inks_change(script("chart.js")))
        self.assertIn("fillStyle = inks[kind]", text)


if __name__ == "__main__":
    unittest.main()
