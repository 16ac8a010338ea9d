# SPDX-License-Identifier: Apache-2.0
"""What tests of commands share: a clean environment, a folder that is removed, and what is asked of
a command that is fine and of one that is refused.

Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

# What a launcher around the tests may have set is not for the commands that they run.
_OF_LAUNCHERS = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "MASTER_", "TORCHELASTIC_", "PENSTOCK_")
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
CLEAN = {name: value for name, value in os.environ.items()
         if name == "PENSTOCK_MODULES"  # where simgrid is
         or not name.startswith(_OF_LAUNCHERS) and name not in _RANKS}


def of_penstock(**more):
    """The environment of a command. LeakSanitizer crashes in short-lived processes."""
    return CLEAN | {"ASAN_OPTIONS": "detect_leaks=0", "LC_ALL": "C.UTF-8",
                    "PENSTOCK_HOME": os.environ["PENSTOCK_SOURCE"]} | more


class CommandCase(unittest.TestCase):
    maxDiff = None
    COMMAND = ()  # in front of all arguments
    ENVIRONMENT = {}

    @classmethod
    def run_command(cls, *arguments, timeout=200, **options):
        return subprocess.run(
            [os.environ["PENSTOCK_BINARY"], *cls.COMMAND, *map(str, arguments)],
            cwd=os.environ["PENSTOCK_SOURCE"], env=cls.ENVIRONMENT, text=True, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=timeout, **options)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def ok(self, *arguments):
        done = self.run_command(*arguments)
        self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        return done.stdout

    def refused(self, *arguments):
        done = self.run_command(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
        return done.stderr
