# SPDX-License-Identifier: Apache-2.0
"""What people see, kept under golden/. UPDATE_GOLDEN=1 rewrites it and marks the run skipped."""

import os
import pathlib
import sys
import unittest

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))
SKIPPED = 77  # Meson's code for it


def expect(case, name, text):
    """`case`, a test, passes when the text is the one kept as `name`."""
    path = GOLDEN / name
    if UPDATE:
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
        case.skipTest(f"{name} was rewritten")
    case.assertEqual(text, path.read_text())


def main():
    """unittest's, with the exit code of a run that rewrote transcripts."""
    outcome = unittest.main(module="__main__", verbosity=2, exit=False).result
    if not outcome.wasSuccessful():
        sys.exit(1)
    if UPDATE:
        print("UPDATE_GOLDEN: the transcripts were rewritten", file=sys.stderr)
        sys.exit(SKIPPED)
