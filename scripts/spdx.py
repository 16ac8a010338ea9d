#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the licence into the first line of every source, below `#!` where there is one.

  scripts/spdx.py [--check] [FILE...]

Without FILE: all sources of the tree, but what others wrote, what is compared byte for byte and examples of jobs. Files that have the line
stay as they are. --check changes nothing, names the files without it and ends with 1.
"""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENCE = "Apache-2.0"
MARK = "SPDX-License-Identifier: " + LICENCE
SLASHES = {".cpp", ".hpp", ".h", ".cu", ".cuh", ".js", ".mjs"}
HASHES = {".py", ".pyi", ".sh"}
LEFT_OUT = re.compile(r"(build|node_modules|__pycache__|vendor|golden|corpus|malformed|templates|tasks)(-.*)?|\.(?!ci$).*")  # folders


def comment_of(path):
    """Returns what begins a comment in this file, or nothing where it is no source."""
    if path.suffix in SLASHES:
        return "//"
    if path.suffix in HASHES or path.name in ("meson.build", "meson_options.txt"):
        return "#"
    if path.suffix == "" and path.is_file():
        with path.open("rb") as file:
            return "#" if re.match(rb"#!.*\b(sh|bash|python3?)\b", file.readline()) else None
    return None


def sources():
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not LEFT_OUT.fullmatch(name))
        for name in sorted(files):
            path = pathlib.Path(folder) / name
            if not path.is_symlink() and comment_of(path):
                yield path


def marked(text, comment):
    """Returns the text with the licence's line; the same text where the line is there."""
    first, newline, rest = text.partition("\n")
    shebang = first + newline if first.startswith("#!") else ""
    body = rest if shebang else text
    line = f"{comment} {MARK}\n"
    return text if body.startswith(line) else shebang + line + body


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    check = "--check" in sys.argv[1:]
    without = 0
    for path in [pathlib.Path(name).resolve() for name in arguments] or sources():
        text = path.read_bytes().decode("utf-8")
        new = marked(text, comment_of(path) or sys.exit(f"{path}: no source that has comments"))
        if new == text:
            continue
        without += 1
        if check:
            print(f"{os.path.relpath(path, ROOT)}: its first line is not '{MARK}'; scripts/spdx.py writes it")
        else:
            path.write_bytes(new.encode())
    return 1 if check and without else 0


if __name__ == "__main__":
    sys.exit(main())
