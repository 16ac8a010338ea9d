#!/usr/bin/env python3
"""Holds docs/architecture.md to the tree: what it says a new schedule, device or key touches."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
ROOMS = ["base", "program", "models", "schedules", "traces", "report", "sim", "hw", "scenarios", "results", "plan", "sweep",
         "validate", "cli"]
DEVICE = """name: Template
memory: 40 GiB
memory_bandwidth: 1000 GB/s
peak: {fp16: 100 TFLOP/s}
efficiency: [[1024, 40%], [4096, 50%]]
"""


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def sources():
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.[ch]pp"))]


class Page(unittest.TestCase):
    def test_files_that_it_names_exist(self):
        named = set(re.findall(r"`([\w/]+(?:\.\w+|/))`", text("docs/architecture.md")))
        self.assertGreater(len(named), 10)
        self.assertEqual([], sorted(name for name in named if "/" in name and not (ROOT / name).exists() and
                                    not any((ROOT / room / name).exists() for room in ROOMS)))

    def test_every_room_is_named(self):
        self.assertEqual([], [room for room in ROOMS if f"`{room}`" not in text("docs/architecture.md")])


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

    def test_one_from_a_template_is_listed_and_simulated(self):
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            shutil.copytree(ROOT / "models", home / "models", ignore=shutil.ignore_patterns("*.[ch]pp"))
            (home / "models/devices/template.yaml").write_text(DEVICE, encoding="utf-8")
            scenario = home / "scenario.yaml"
            scenario.write_text("model: gpt-355m\nschedule: 1f1b\npipeline: {stages: 2, microbatches: 4}\n"
                                "cluster: {nodes: 1, devices_per_node: 2, intra: 100 GB/s, device: template}\n",
                                encoding="utf-8")
            env = dict(os.environ, PENSTOCK_HOME=folder)
            run = lambda *words: subprocess.run([BINARY, *words], env=env, capture_output=True, text=True,
                                                check=True).stdout
            self.assertIn("template", run("list", "devices").lower())
            self.assertIn("(Template)", run("simulate", str(scenario), "--engine", "exact"))


if __name__ == "__main__":
    unittest.main()
