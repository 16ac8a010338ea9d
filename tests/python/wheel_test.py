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
# The page takes as long to compile as all else; this tree's was compiled already, with the same flags.
PAGE = pathlib.Path(os.environ["PENSTOCK_BINARY"]).parent.parent / "playground"
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


class Wheel(unittest.TestCase):
    def test_is_all_that_a_fresh_venv_needs(self):
        import json
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            done(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-q",
                 "--config-settings=setup-args=-Doptimization=0", "-w", folder, SOURCE, env=BUILDS)
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
