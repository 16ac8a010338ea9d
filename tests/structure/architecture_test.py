#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds docs/architecture.md to the tree; additions_test.py adds what its table has rows for."""
import fnmatch
import os
import pathlib
import re
import unittest

import overlay

ROOT = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
ROOMS = ["base", "program", "models", "schedules", "traces", "report", "sim", "hw", "scenarios", "results", "plan", "sweep",
         "validate", "cli"]


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def sources():
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.[ch]pp"))]


def rows():
    """Of the page's table: what is new, and the files that are to be touched (* is any name)."""
    table = text("docs/architecture.md").split("\n| new | files |\n|---|---|\n", 1)[1].split("\n\n", 1)[0]
    cells = [line.strip("|").split("|") for line in table.splitlines()]
    return {new.strip(): re.findall(r"`([^`]+/[^`]+)`", files) for new, files in cells}


class Page(unittest.TestCase):
    def test_files_that_it_names_exist(self):
        named = set(re.findall(r"`([\w/]+(?:\.\w+|/))`", text("docs/architecture.md")))
        self.assertGreater(len(named), 10)
        self.assertEqual([], sorted(name for name in named if "/" in name and not (ROOT / name).exists() and
                                    not any((ROOT / room / name).exists() for room in ROOMS)))

    def test_every_room_is_named(self):
        self.assertEqual([], [room for room in ROOMS if f"`{room}`" not in text("docs/architecture.md")])

    def test_each_row_has_a_template(self):
        self.assertEqual(sorted(rows()), overlay.names_of_templates())

    def test_a_template_touches_the_files_of_its_row(self):
        for new, patterns in rows().items():
            with self.subTest(new):
                left = sorted(overlay.changed(new, ROOT))
                for pattern in sorted(patterns, key=lambda p: "*" in p):
                    found = fnmatch.filter(left, pattern)
                    self.assertTrue(found, f"the page lists {pattern}, which the template does not touch")
                    left.remove(found[0])
                self.assertEqual([], left, "the template touches what the page does not list")


class Fuzzed(unittest.TestCase):
    def test_the_table_of_targets_is_the_one_of_the_fuzzer(self):
        targets = text("tests/fuzz/fuzz.cpp").split("const Target kTargets[]", 1)[1]
        covers = {name: " ".join(re.findall(r'"([^"]+)"', files))
                  for name, files in re.findall(r'\.name = "([^"]+)".*?\.covers = \{([^}]*)\}', targets, re.S)}
        self.assertEqual(len(covers), targets.count(".name = "))
        table = text("docs/reliability.md").split("\n| target | files |\n|---|---|\n", 1)[1].split("\n\n", 1)[0]
        self.assertEqual(dict(line.strip("| ").split(" | ") for line in table.splitlines()), covers)
        self.assertEqual([], [f for files in covers.values() for f in files.split() if not (ROOT / f).exists()])


class Keys(unittest.TestCase):
    """A section's rows of the table and the fields of its part of the specification."""

    def rows(self, section):
        return sorted(re.findall(rf'\{{"{section}",\s*"(\w+)"', text("scenarios/keys.cpp")))

    def fields(self, start):
        part = text("scenarios/specification.hpp").split(start, 1)[1].split("\n};", 1)[0]
        return sorted(set(re.findall(r'\w+\{section, "(\w+)"\}', part)))

    def test_the_specification_mirrors_the_table(self):
        for section, start, apart in [("scenario", "struct Specification {", ["stack"]),
                                      ("pipeline", "struct PipelineKeys {", ["reduction"]),
                                      ("reduction", "struct ReductionKeys {", [])]:
            with self.subTest(section):
                self.assertEqual(self.rows(section), sorted(self.fields(start) + apart))


class Schedules(unittest.TestCase):
    def test_a_generator_is_in_its_file_and_in_the_catalog(self):
        names = re.findall(r"^Schedule (\w+)\(\);", text("schedules/catalog.hpp"), re.M)
        self.assertGreater(len(names), 20)
        for name in names:
            defined = [path.name for path in (ROOT / "schedules/catalog").glob("*.cpp")
                       if re.search(rf"^Schedule {name}\(\) {{", path.read_text(encoding="utf-8"), re.M)]
            self.assertEqual(1, len(defined), name)
            self.assertIn(f"{name}()", text("schedules/catalog.cpp"))


class Devices(unittest.TestCase):
    def test_no_source_names_one(self):
        shipped = [path.stem for path in (ROOT / "models/devices").glob("*.yaml")]
        self.assertGreater(len(shipped), 3)
        for path in sources():
            if path.name == "run_table.cpp":
                continue  # what tables of others call the GPU of a cluster
            code = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
            self.assertEqual([], [name for name in shipped if f'"{name}"' in code], path)


if __name__ == "__main__":
    unittest.main()
