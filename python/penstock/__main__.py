# SPDX-License-Identifier: Apache-2.0
"""`python3 -m penstock ...` is the program."""

import os
import sys

from .commands import program


def main() -> None:
    os.environ.setdefault("PENSTOCK_PYTHON", sys.executable)  # who has this package
    os.execv(program(), [program(), *sys.argv[1:]])


if __name__ == "__main__":
    main()
