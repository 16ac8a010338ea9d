# SPDX-License-Identifier: Apache-2.0
"""Shipped scenarios by their name, the commands that explain the others, and the manual page."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from command_case import CommandCase, of_penstock

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
SHIPPED = sorted(path.stem for path in (SOURCE / "scenarios").glob("*.yaml"))
NAME, SHOWN = "small-1f1b", "scenarios/small-1f1b.yaml"


class Case(CommandCase):
    ENVIRONMENT = of_penstock()

    def run_here(self, *arguments, **environment):
        """In an empty folder, far from the sources."""
        return subprocess.run([os.environ["PENSTOCK_BINARY"], *arguments], cwd=self.folder,
                              env=self.ENVIRONMENT | environment, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=100)

    def ok_here(self, *arguments, **environment):
        done = self.run_here(*arguments, **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def refused_here(self, *arguments):
        done = self.run_here(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        return done.stderr


class Names(Case):
    def test_every_command_that_takes_a_scenario_takes_its_name(self):
        for command in (["simulate", NAME, "--reproducible"], ["export", NAME],
                        ["compare", NAME, "small-gpipe", "--reproducible"],
                        ["replay", NAME, "--clock", "virtual", "--reproducible"],
                        ["sweep", NAME, "--over", "microbatches=4,8", "--reproducible",
                         "--format", "csv"],
                        ["plan", "gpt-2.2b-2bw", "--search", "2bw"]):
            with self.subTest(command):
                by_file = [str(SOURCE / "scenarios" / (word + ".yaml")) if word in SHIPPED else word
                           for word in command]
                by_name = self.run_here(*command)
                self.assertEqual(by_name.returncode, 0, by_name.stderr)
                self.assertEqual(by_name.stdout, self.run_here(*by_file).stdout)

    def test_a_recording_is_validated_against_a_named_scenario(self):
        recording = self.folder / "run.json"
        self.ok_here("replay", NAME, "--clock", "virtual", "--record", str(recording))
        rows = json.loads(self.ok_here("validate", str(recording), NAME, "--format", "json"))
        self.assertEqual(rows, json.loads(self.ok_here("validate", str(recording), "--format",
                                                       "json")))

    def test_calibrate_takes_what_a_named_scenario_runs(self):
        request = self.folder / "request.json"
        done = self.run_here("calibrate", "gpt-2.2b-2bw", "--request", str(request))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(request.read_text())["model"]["name"], "GPT-2.2B")

    def test_a_file_of_that_name_goes_first(self):
        text = (SOURCE / SHOWN).read_text()
        (self.folder / NAME).write_text(re.sub(r"(?m)^name:.*", "name: my own", text))
        self.assertTrue(self.ok_here("simulate", NAME).startswith("my own\n"))

    def test_a_folder_of_that_name_is_none(self):
        (self.folder / NAME).mkdir()
        self.assertIn("1f1b, 4 stages", self.ok_here("simulate", NAME))

    def test_case_does_not_matter(self):
        self.assertIn("GPT-2.2B, 2BW", self.ok_here("simulate", "GPT-2.2B-2BW"))

    def test_no_model_is_called_as_a_scenario(self):
        self.assertEqual([n for n in SHIPPED if (SOURCE / f"models/{n}.yaml").exists()], [])

    def test_all_are_listed_with_what_they_are(self):
        rows = json.loads(self.ok_here("list", "scenarios", "--format", "json"))
        self.assertEqual([row["name"] for row in rows], SHIPPED)
        self.assertEqual([row for row in rows if not row["description"]], [])
        table = self.ok_here("list", "scenarios")
        self.assertRegex(table, r"(?m)^gpt-2.2b-2bw +GPT-2.2B, 2BW, 8 V100$")
        self.assertLessEqual(max(map(len, table.splitlines())), 120)


class DataFolder(Case):
    """$PENSTOCK_HOME, else share/penstock beside the program's folder, else the sources."""

    def setUp(self):
        super().setUp()
        for folder in ("a/bin", "a/lib/penstock", "a/share/penstock/scenarios"):
            (self.folder / folder).mkdir(parents=True)
        self.program = self.folder / "a/bin/penstock"
        shutil.copy(os.environ["PENSTOCK_BINARY"], self.program)
        self.clean = {k: v for k, v in self.ENVIRONMENT.items() if k != "PENSTOCK_HOME"}

    def listed(self, what, program=None, **environment):
        done = subprocess.run([program or self.program, "list", what, "--format", "csv"],
                              cwd=self.folder, env=self.clean | environment, text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split(",")[0] for line in done.stdout.splitlines()[1:]]

    def install(self):
        (self.folder / "a/share/penstock/models").mkdir()
        (self.folder / "a/share/penstock/scenarios/only-here.yaml").write_text("name: only here\n")

    def test_of_the_sources_where_nothing_is_installed(self):
        self.assertEqual(self.listed("scenarios"), SHIPPED)

    def test_of_the_installation_also_when_it_is_moved_or_linked_to(self):
        self.install()
        self.assertEqual(self.listed("scenarios"), ["only-here"])
        (self.folder / "a").rename(self.folder / "b")
        moved = self.folder / "b/bin/penstock"
        self.assertEqual(self.listed("scenarios", moved), ["only-here"])
        (self.folder / "link").symlink_to(moved)
        self.assertEqual(self.listed("scenarios", self.folder / "link"), ["only-here"])

    def test_the_environment_goes_first(self):
        self.install()
        self.assertEqual(self.listed("scenarios", PENSTOCK_HOME=str(SOURCE)), SHIPPED)


class HelpCommand(Case):
    def test_is_the_help_of_the_command(self):
        for command in ("simulate", "schedule show", "trace check", "help"):
            self.assertEqual(self.ok_here("help", *command.split()),
                             self.ok_here(*command.split(), "--help"))
        self.assertEqual(self.ok_here("help"), self.ok_here("--help"))

    def test_groups_list_their_commands(self):
        text = self.ok_here("help", "schedule")
        self.assertEqual(text, self.ok_here("schedule", "--help"))
        for command in ("list", "show", "export", "check"):
            self.assertRegex(text, rf"(?m)^  schedule {command} +\w")

    def test_wrong_words_are_refused(self):
        for words, hint in (("simulat", "did you mean 'simulate'?"),
                            ("schedule shw", "did you mean 'show'?"),
                            ("simulate x", "unexpected argument 'x'"),
                            ("--man simulate", "leave out 'simulate'")):
            self.assertIn(hint, self.refused_here("help", *words.split()))


class ManualPage(Case):
    FORMATTERS = (["groff", "-man", "-Tutf8", "-ww"], ["mandoc", "-Tlint", "-Wwarning"],
                  ["man", "--warnings", "-l", "-"])

    def setUp(self):
        super().setUp()
        self.page = self.ok_here("help", "--man")

    def test_formats_without_warnings(self):
        there = [words for words in self.FORMATTERS if shutil.which(words[0])]
        if not there:
            self.skipTest("neither groff nor mandoc nor man is installed")
        for words in there:
            done = subprocess.run(words, input=self.page, text=True, capture_output=True,
                                  env=os.environ | {"LC_ALL": "C.UTF-8"}, timeout=60)
            said = done.stdout if words[0] == "mandoc" else ""
            self.assertEqual((done.stderr, said), ("", ""), words)

    def test_has_every_command_option_and_exit_code(self):
        text = self.page.replace("\\-", "-")
        general = self.ok_here("--help")
        for command in re.findall(r"(?m)^  ([a-z]+(?: [a-z]+)?)  +\w", general):
            self.assertIn(f".SS penstock {command}\n", text)
            for option in re.findall(r"(?m)^  (?:-\w, )?(--[a-z-]+)",
                                     self.ok_here("help", *command.split())):
                self.assertIn(f"\\fB{option}\\fR", text)
        for code in ("0", "1", "2", "3", "4", "70", "130"):
            self.assertIn(f".TP\n\\fB{code}\\fR\n", text)
        for name in ("NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"):
            self.assertIn(f".SH {name}\n", text)
        self.assertIn("PENSTOCK_HOME", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
