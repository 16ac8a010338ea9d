#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nothing that lies in the current folder is run, whatever it is called: a folder of somebody's scenarios may
hold a penstock/__init__.py or a json.py."""
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from needs import need

need("numpy")

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
PROGRAM = os.environ["PENSTOCK_BINARY"]
SHARED = pathlib.Path(os.environ.get("PENSTOCK_SHARED", SOURCE / "../shared"))
#: What Python, the package and its executors import.
NAMES = ("abc", "argparse", "codecs", "concurrent", "distributed", "encodings", "functools", "hmac", "importlib", "io", "json",
         "multiprocessing", "numpy", "os", "pathlib", "penstock", "pickle", "re", "runpy", "secrets", "site", "sitecustomize",
         "socket", "struct", "sys", "threading", "usercustomize", "yaml")
PATHS = (None, "", ":", ".", "./", "a:", f":{os.environ.get('PYTHONPATH', '')}")


class Hijacked(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="penstock-hijack-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in NAMES:
            (self.folder / name).mkdir()
            (self.folder / name / "__init__.py").write_text("open('owned', 'w').close()\n")
            (self.folder / f"{name}.py").write_text("open('owned', 'w').close()\n")
        for name in ("python3", "penstock", "penstock-run"):
            program = self.folder / name
            if not program.exists():
                program.write_text("#!/bin/sh\ntouch owned\n")
                program.chmod(0o755)

    def environment(self, path):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return environment | {"PENSTOCK_HOME": str(SOURCE)} | ({} if path is None else {"PYTHONPATH": path})

    def check(self, *words, folder=None, path=None):
        done = subprocess.run([PROGRAM, *words], cwd=folder or self.folder, env=self.environment(path), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
        self.assertFalse((self.folder / "owned").exists(), (words, path))
        return done

    def test_executors(self):
        for path in PATHS:
            done = self.check("sweep", "small-1f1b", "--over", "stages=2,4", "--on", "processes", "--format", "csv", path=path)
            self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 3), done.stderr)
        done = self.check("plan", "gpt-355m-asp", "--search", "full", "--on", "processes", "--time-limit", "3")
        self.assertIn(done.returncode, (0, 1, 2), done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.check("sweep", "small-1f1b", "--over", "stages=2,4", "--on", "dask://127.0.0.1:1")

    def test_serve(self):
        for path in PATHS:
            process = subprocess.Popen([PROGRAM, "serve"], cwd=self.folder, env=self.environment(path), text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.readline()  # the address, or the end of one that has no page
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            self.assertFalse((self.folder / "owned").exists(), path)
            self.assertNotIn("Traceback", said)

    def test_other_programs(self):
        self.check("replay", "small-1f1b", "--clock", "virtual")
        self.check("simulate", "small-1f1b", "--engine", "simgrid")
        self.check("doctor")

    def test_a_relative_folder_of_pythonpath_is_none(self):
        self.assertEqual(self.check("sweep", "small-1f1b", "--over", "stages=2,4", "--on", "processes", path="x/..:.").returncode, 0)

    def test_the_folder_of_the_issue(self):
        folder = SHARED / "cases/attack/hijack"
        if not SHARED.exists():
            raise unittest.SkipTest(f"no {SHARED}")
        with tempfile.TemporaryDirectory() as copy:
            (pathlib.Path(copy) / "penstock").mkdir()
            (pathlib.Path(copy) / "penstock/__init__.py").write_bytes((folder / "penstock/__init__.py").read_bytes())
            for words in (("sweep", "small-1f1b", "--over", "stages=2,4", "--on", "processes"),
                          ("plan", "gpt-355m-asp", "--search", "full", "--on", "processes", "--time-limit", "2")):
                self.check(*words, folder=copy)
            self.assertEqual(os.listdir(copy), ["penstock"])


if __name__ == "__main__":
    unittest.main()
