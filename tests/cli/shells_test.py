# SPDX-License-Identifier: Apache-2.0
"""What bash, zsh and fish offer for a command line, each asked in its own way. A shell that is not
installed is skipped with the reason. The shell is named as the argument: Bash, Zsh or Fish."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from command_case import CommandCase, of_penstock

SCENARIOS = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "scenarios"


class Shell:
    """What is expected of every shell."""
    ENVIRONMENT = of_penstock(TERM="dumb")
    NAME = ""
    BEHIND_EQUALS = "json"  # what is offered behind --format=j

    def setUp(self):
        super().setUp()
        self.file = self.folder / f"completion.{self.NAME}"
        self.file.write_text(self.ok("completion", self.NAME))
        (self.folder / "gpt-own.yaml").write_text("name: a file beside shipped names\n")

    def shell(self, *words):
        done = subprocess.run(words, cwd=self.folder, env=self.ENVIRONMENT, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout

    def offers(self, line):
        raise NotImplementedError

    def assert_offers(self, line, *words):
        self.assertEqual(self.offers(line), set(words), line)

    def test_it_is_of_that_shell(self):
        self.shell(self.NAME, "-n", str(self.file))

    def test_commands_and_groups(self):
        self.assert_offers("penstock sim", "simulate")
        self.assert_offers("penstock comp", "compare", "completion")
        self.assert_offers("penstock schedule s", "show")
        self.assert_offers("./penstock sim", "simulate")

    def test_help_takes_commands(self):
        self.assert_offers("penstock help comp", "compare", "completion")
        self.assert_offers("penstock help schedule s", "show")
        self.assert_offers("penstock help simulate g")

    def test_options_and_their_values(self):
        self.assert_offers("penstock simulate x.yaml --rep", "--report", "--reproducible")
        self.assert_offers("penstock schedule show 1f1b --fo", "--format")
        self.assert_offers("penstock simulate --engine ", "auto", "exact", "fluid", "simgrid")
        self.assert_offers("penstock simulate --format=j", self.BEHIND_EQUALS)
        self.assert_offers("penstock simulate --set sched", "schedule=")
        self.assert_offers("penstock schedule show 1f1b --set tran", "transfer=", "transfers=",
                           "transfers_divided=")
        self.assert_offers("penstock simulate x.yaml --report gpt-o", "gpt-own.yaml")
        self.assert_offers("penstock simulate -o gpt-o", "gpt-own.yaml")

    def test_scenarios_by_name_and_files(self):
        shipped = {path.stem for path in SCENARIOS.glob("gpt-*.yaml")}
        for command in ("simulate", "compare a.yaml", "replay --processes", "export", "sweep"):
            self.assert_offers(f"penstock {command} gpt-", "gpt-own.yaml", *shipped)
        self.assertIn("gpt-2.2b", self.offers("penstock plan gpt-"))

    def test_what_is_shipped(self):
        self.assert_offers("penstock schedule show dapple-p", "dapple-pa", "dapple-pb")
        self.assert_offers("penstock list sc", "scenarios", "schedules")
        self.assert_offers("penstock completion ", "bash", "zsh", "fish")


class Bash(Shell, CommandCase):
    NAME = "bash"

    def offers(self, line):
        # As readline does: "=" is a word of its own.
        words = line.replace("=", " = ").split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        text = self.shell("bash", "-c", f"source {self.file}\nCOMP_WORDS=({quoted})\n"
                          f"COMP_CWORD={len(words) - 1}\n_penstock\n"
                          'printf "%s\\n" "${COMPREPLY[@]}"')
        # Options are offered with arguments.
        return {word for word in text.split() if words[-1] or not word.startswith("-")}


class Zsh(Shell, CommandCase):
    NAME = "zsh"

    def offers(self, line):
        return set(self.shell("zsh", "-f", str(HERE / "zsh_offers.zsh"), str(self.file),
                              line).split())


class Fish(Shell, CommandCase):
    NAME = "fish"
    BEHIND_EQUALS = "--format=json"

    def setUp(self):
        super().setUp()
        self.ENVIRONMENT = self.ENVIRONMENT | {"HOME": str(self.folder)}

    def offers(self, line):
        text = self.shell("fish", "--no-config", "-c",
                          f"source {self.file}; complete -C '{line}'")
        return {offer.split("\t")[0] for offer in text.splitlines()}


if __name__ == "__main__":
    if shutil.which(sys.argv[1].lower()) is None:
        print(f"skipped: {sys.argv[1].lower()} is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
