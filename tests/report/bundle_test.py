#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The committed chart library is what its checksum, lock file and licence header say."""
import hashlib
import json
import os
import pathlib
import unittest

VENDOR = pathlib.Path(os.environ["PENSTOCK_SOURCE"], "report", "vendor")
BUNDLE = VENDOR / "echarts.min.js"


class Bundle(unittest.TestCase):
    def test_it_has_its_checksum(self):
        digest, name = (VENDOR / "echarts.min.js.sha256").read_text().split()
        self.assertEqual(name, BUNDLE.name)
        self.assertEqual(hashlib.sha256(BUNDLE.read_bytes()).hexdigest(), digest)

    def test_it_opens_with_its_licences_and_the_locked_version(self):
        text = BUNDLE.read_text()
        licence = (VENDOR / "licence.txt").read_text().strip()
        self.assertIn(licence.removeprefix("/*!").removesuffix("*/").strip(), text[:5000])
        packages = json.loads((VENDOR / "package-lock.json").read_text())["packages"]
        self.assertIn(f"ECharts {packages['node_modules/echarts']['version']}", text[:200])

    def test_it_leaves_room_in_a_megabyte(self):
        ours = sum(p.stat().st_size for p in (VENDOR.parent / "page").iterdir())
        self.assertLess(BUNDLE.stat().st_size + ours, 1_000_000)


if __name__ == "__main__":
    unittest.main()
