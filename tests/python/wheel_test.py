#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`pip wheel .` without a network, installed into a fresh venv, used from another folder."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from needs import need

try:
    import tomllib
except ImportError:  # Python before 3.11
    tomllib = None

need("numpy", "mesonpy", "pip", "venv", "ensurepip")

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTHON"))}
BUILD = pathlib.Path(os.environ["PENSTOCK_BINARY"]).parent.parent
# The page takes as long to compile as all else; this tree's was compiled already, with the same flags.
PAGE = BUILD / "playground"
BUILDS = CLEAN | ({"PENSTOCK_PLAYGROUND_OBJECTS": str(PAGE / "objects")} if (PAGE / "index.html").exists() else {})
USE = """
import json, penstock
from penstock import _core
result = penstock.simulate("small-1f1b")
rows = penstock.sweep("small-1f1b", over={"stages": [2, 4]})
print(json.dumps({"package": penstock.__file__, "data": _core.data_folder(), "program": penstock.program(),
                  "makespan_s": result.makespan_s, "engine": result.engine, "rows": len(rows),
                  "version": penstock.__version__}))
"""


def done(*words, env=CLEAN, **settings):
    process = subprocess.run([str(word) for word in words], text=True, capture_output=True,
                             env=env, stdin=subprocess.DEVNULL, **settings)
    if process.returncode:
        raise AssertionError(f"{words}\n{process.stdout[-4000:]}\n{process.stderr[-4000:]}")
    return process.stdout


def is_compiled_alike():
    """Was this tree built as a wheel is, in a folder that sees the sources from as far?"""
    if tomllib is None or BUILD.parent != SOURCE:
        return False
    options = {o["name"]: o["value"] for o in json.loads(done("meson", "introspect", BUILD, "--buildoptions"))}
    asked = {"unity": "on", "optimization": "2", "debug": False, "b_ndebug": "false", "b_sanitize": "none"}
    return asked.items() <= options.items()


def begin_with_objects(folder):
    """What was built, configured as pyproject.toml says; sources that meson writes anew are as old as they were."""
    own = shutil.ignore_patterns("tests", "meson-info", "meson-logs", "meson-private", "build.ninja")
    shutil.copytree(BUILD, folder, ignore=own, dirs_exist_ok=True)
    setup = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["meson-python"]["args"]["setup"]
    done("meson", "setup", f"--prefix={sys.base_prefix}", *setup, folder, SOURCE)
    log = folder / ".ninja_log"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "\tbuild.ninja\t" not in line))
    for path in folder.rglob("*-unity*.cpp"):
        made = BUILD / path.relative_to(folder)
        if made.exists() and made.read_text() == path.read_text().replace(str(folder), str(BUILD)):
            shutil.copystat(made, path)


class Wheel(unittest.TestCase):
    def test_is_all_that_a_fresh_venv_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            how = "setup-args=-Doptimization=0"
            if is_compiled_alike():
                rebuilt = pathlib.Path(tempfile.mkdtemp(prefix="build-wheel-", dir=SOURCE))
                self.addCleanup(shutil.rmtree, rebuilt, ignore_errors=True)
                begin_with_objects(rebuilt)
                how = f"builddir={rebuilt}"
            done(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-q",
                 f"--config-settings={how}", "-w", folder, SOURCE, env=BUILDS)
            wheel, = folder.glob("penstock-*.whl")
            done(sys.executable, "-m", "venv", "--system-site-packages", folder / "venv")
            python = folder / "venv/bin/python"
            done(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel)
            elsewhere = folder / "elsewhere"
            elsewhere.mkdir()
            said = json.loads(done(python, "-c", USE, cwd=elsewhere))
            inside = str(folder / "venv")
            for what in ("package", "data", "program"):
                self.assertTrue(said[what].startswith(inside), said)
            self.assertEqual((said["makespan_s"], said["engine"], said["rows"]), (41.0, "simgrid", 2))
            self.assertIn(said["version"], done(folder / "venv/bin/penstock", "--version", cwd=elsewhere))
            self.assertIn("small-1f1b", done(folder / "venv/bin/penstock", "list", "scenarios", cwd=elsewhere))
            self.serves(folder / "venv/bin/penstock", elsewhere)
            self.assertEqual(list(elsewhere.iterdir()), [])

    def serves(self, program, folder):
        """The playground, where emscripten was at hand; else it says what is missing."""
        serving = subprocess.Popen([program, "serve"], cwd=folder, env=CLEAN, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with serving:
            try:
                url = serving.stdout.readline().strip()
                if shutil.which("em++"):
                    self.assertIn(b'<meta name="penstock-engine"', urllib.request.urlopen(url).read())
                else:
                    self.assertIn("the page is not there", serving.stderr.read())
            finally:
                serving.terminate()


if __name__ == "__main__":
    unittest.main()
