#!/usr/bin/env python3
"""docs/scoreboard.md says what `penstock validate` says today: some of its sets are predicted again, in full."""
import importlib.util
import os
import pathlib
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
SHARED = pathlib.Path(os.environ.get("PENSTOCK_SHARED", SOURCE / ".." / "shared"))
SAMPLE = ("bigscience, A100", "SimuMax, dense Llama-3 layers on 8 B200", "nanotron, H100, finished or not",
          "Zero Bubble, 1.5 to 28.3 billion parameters on A100")
FITTED = ("Selene, 22 billion to 1 trillion parameters", "Sailor, OPT-350 on GH200", "vTrain, one node of A100", "vTrain, 64 to 512 A100")


def scoreboard():
    os.environ["PENSTOCK"] = os.environ["PENSTOCK_BINARY"]
    spec = importlib.util.spec_from_file_location("scoreboard", SOURCE / "scripts" / "scoreboard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Scoreboard(unittest.TestCase):
    def test_a_sample_of_the_sets_is_as_written(self):
        if not (SHARED / "data" / "field").is_dir():
            self.skipTest(f"no published runs: {SHARED} is not there (PENSTOCK_SHARED)")
        module = scoreboard()
        written = (SOURCE / "docs" / "scoreboard.md").read_text()
        for title in SAMPLE:
            with self.subTest(title=title):
                board = module.Board(SHARED)
                board.add(next(one for one in module.SETS if one["title"] == title))
                lines = [*board.lines, *board.memory, *board.baselines]
                self.assertTrue(lines)
                for line in [*lines, *board.notes]:
                    self.assertIn(line, written)

    def test_fits_that_have_not_seen_a_row_predict_it_as_written(self):
        if not (SHARED / "data" / "measured").is_dir():
            self.skipTest(f"no published runs: {SHARED} is not there (PENSTOCK_SHARED)")
        module = scoreboard()
        written = (SOURCE / "docs" / "scoreboard.md").read_text()

        def mean_and_median(line):
            return [float(cell.strip().rstrip(" %")) for cell in line.split("|")[4:6]]

        for title in FITTED:
            with self.subTest(title=title):
                board = module.Board(SHARED)
                board.add(next(one for one in module.SETS if one["title"] == title))
                at = written.index(f"| {title} |")
                for line, was in zip(board.lines, written[at:].splitlines()):
                    # A fit ends where a step gains little: not at the last digit on every machine.
                    for value, expected in zip(mean_and_median(line), mean_and_median(was)):
                        self.assertAlmostEqual(value, expected, delta=0.2)

    def test_constant_mfu_is_right_where_only_the_bubble_differs(self):
        module = scoreboard()
        row = {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 32000, "seq": 2048, "gpu": "h100", "dp": 1, "tp": 1,
               "microbatch": 1}
        rows = [row | {"pp": pp, "microbatches": m, "iteration_s": (m + pp - 1) / pp} for pp, m in ((1, 8), (4, 8), (4, 16))]
        for error in module.constant_mfu(rows):
            self.assertAlmostEqual(error, 0)
        slow = rows[:2] + [rows[2] | {"iteration_s": 2 * rows[2]["iteration_s"]}]
        self.assertAlmostEqual(module.constant_mfu(slow)[2], -0.5)


if __name__ == "__main__":
    unittest.main()
