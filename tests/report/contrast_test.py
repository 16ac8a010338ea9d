#!/usr/bin/env python3
"""Dark reports can be read: the contrast (WCAG 2.1) of texts with what they stand on is at least 4.5:1, that of what
charts draw with their paper at least 3:1. From the style sheet and the colours in page/chart.js; needs $PENSTOCK_SOURCE."""
import os
import pathlib
import re
import unittest

PAGE = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "report" / "page"
TEXT, SERIES = 4.5, 3
TEXTS = ("ink", "faint", "good", "bad", "F")  # F: links
DRAWN = ("F", "B", "I", "W", "R", "S", "recompute", "message", "front", "good", "bad", "focus")
BARS = ("F", "B", "I", "W", "R", "S", "recompute")  # microbatches stand on them


def variables(selector):
    style = (PAGE / "page.css").read_text()
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", re.search(re.escape(selector) + r" \{(.*?)\}", style, re.S)[1]))


def colours(name, text):
    return re.findall(r"#[0-9a-f]{6}", re.search(rf"{name} = \[(.*?)\]", text, re.S)[1])


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class Dark(unittest.TestCase):
    def setUp(self):
        self.is_ = variables(":root") | variables(":root[data-theme=dark]")

    def check(self, colour, on, least, name):
        self.assertGreaterEqual(contrast(colour, self.is_[on]), least, f"{name} {colour} on {on} {self.is_[on]}")

    def test_the_measure(self):
        self.assertAlmostEqual(contrast("#fff", "#000000"), 21)
        self.assertAlmostEqual(contrast("#777", "#ffffff"), 4.48, 2)

    def test_texts(self):
        for name in TEXTS:
            for on in ("paper", "card"):
                self.check(self.is_[name], on, TEXT, name)
        for name in BARS:
            self.check(self.is_[name], "on-bar", TEXT, name)

    def test_what_charts_draw(self):
        for name in DRAWN:
            self.check(self.is_[name], "paper", SERIES, name)
        for name in BARS:  # of a lane, beside its idle time
            self.check(self.is_[name], "idle", SERIES, name)

    def test_colours_of_many(self):
        script = (PAGE / "chart.js").read_text()
        ramp = colours("VIRIDIS", script)[int(re.search(r"VIRIDIS_ON_DARK = (\d+)", script)[1]):]
        self.assertGreater(len(ramp), 4)
        for colour in colours("OKABE_ITO", script) + ramp:
            self.check(colour, "paper", SERIES, "a line")
        # What lies between two of them is no darker than the darker one.
        self.assertEqual(ramp, sorted(ramp, key=luminance))


class Light(unittest.TestCase):
    def test_texts(self):
        is_ = variables(":root")
        for name in TEXTS:
            for on in ("paper", "card"):
                self.assertGreaterEqual(contrast(is_[name], is_[on]), TEXT, f"{name} on {on}")


if __name__ == "__main__":
    unittest.main()
