#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/site.sh makes a page of every page of docs/, without a warning; skipped where Sphinx is not there."""
import importlib.util
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
MISSING = [name for name in ("sphinx", "myst_parser", "furo") if importlib.util.find_spec(name) is None]


@unittest.skipIf(MISSING, f"without {', '.join(MISSING)}, which scripts/site.sh installs")
class Site(unittest.TestCase):
    def test_every_page_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([ROOT / "scripts/site.sh", folder], text=True, capture_output=True, timeout=250)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            self.assertEqual(f"{folder}/docs/index.html", done.stdout.strip())
            pages = [page.relative_to(ROOT).with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")]
            self.assertGreater(len(pages), 40)
            self.assertEqual([], [str(page) for page in pages if not (pathlib.Path(folder) / page).exists()])


if __name__ == "__main__":
    unittest.main()
