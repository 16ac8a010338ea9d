#!/usr/bin/env python3
"""`pip wheel .` without a network, installed into a fresh venv, used from another folder."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from needs import need

need("numpy", "mesonpy", "pip", "venv", "ensurepip")

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTHON"))}
BUILD = pathlib.Path(os.environ["PENSTOCK_BINARY"]).parent.parent
# The page takes as long to compile as all else; this tree's was compiled already, with the same flags.
PAGE = BUILD / "playground"
BUILDS = CLEAN | ({"PENSTOCK_PLAYGROUND_OBJECTS": str(PAGE / "objects")} if (PAGE / "index.html").exists() else {})
# Where this tree was built: what a wheel has from the same sources by the same commands is not compiled
# again. Commands name sources by where they are seen from, so it lies beside.
REBUILT = SOURCE / "build-wheel"
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


def begin_with_objects():
    """What was built, configured as pyproject.toml says; sources that meson writes anew are as old as they were."""
    import tomllib
    shutil.rmtree(REBUILT, ignore_errors=True)
    own = shutil.ignore_patterns("tests", "meson-info", "meson-logs", "meson-private", "build.ninja")
    shutil.copytree(BUILD, REBUILT, ignore=own)
    setup = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["meson-python"]["args"]["setup"]
    done("meson", "setup", f"--prefix={sys.base_prefix}", *setup, REBUILT, SOURCE)
    log = REBUILT / ".ninja_log"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "\tbuild.ninja\t" not in line))
    for path in REBUILT.rglob("*-unity*.cpp"):
        made = BUILD / path.relative_to(REBUILT)
        if made.exists() and made.read_text() == path.read_text().replace(str(REBUILT), str(BUILD)):
            shutil.copystat(made, path)


class Wheel(unittest.TestCase):
    def test_is_all_that_a_fresh_venv_needs(self):
        import json
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            if BUILD.parent == SOURCE:
                self.addCleanup(shutil.rmtree, REBUILT, ignore_errors=True)
                begin_with_objects()
                how = f"builddir={REBUILT}"
            else:
                how = "setup-args=-Doptimization=0"
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
