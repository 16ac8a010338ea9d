# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package say what they lack, and are skipped then."""
import importlib.util
import os
import sys

SKIPPED = 77  # as meson understands it


def need(*modules):
    """Ends the test as skipped where the package was not built or a module is not there."""
    built = os.environ.get("PENSTOCK_PACKAGE", "yes")
    missing = [m for m in modules if importlib.util.find_spec(m) is None]
    if built != "yes":
        print(f"skipped: {built}")
    elif missing:
        print(f"skipped: Python has no module {', '.join(missing)}")
    else:
        return
    sys.exit(SKIPPED)
