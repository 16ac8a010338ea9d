#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what README.md and docs/ show of commands: each block that begins with `$ ./penstock ...`,
of Python: what stands below `>>>`, and of other pages: rows of their tables.

  scripts/shown_output.py [--check] [PAGE...]

A block is indented by four spaces; what stands below the command up to the next one, or to the end of
the block, is what it prints. Commands without output there are instructions and are not run. Between
`<!-- rows of PAGE: COLUMN | ...`, which goes on with the first cell of each row, and `<!-- end of rows -->`
stand these rows and columns of that page's table. Times of the machine ("21.9 ms CPU") stay as they are. --check changes nothing, shows what differs and ends
with 1. $PENSTOCK_BINARY is the program (default: ./penstock). The package for Python is that of build/python
or $PYTHONPATH; without it pages with Python stay as they are, which is said.
"""

import contextlib
import difflib
import doctest
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("PENSTOCK_BINARY", "./penstock")
INDENT = "    "
MACHINE = re.compile(r"\([0-9.]+ [mun]?s CPU\)")


def printed(command):
    shell = re.sub(r"(^|\| *)\./penstock\b", r'\1"$PROGRAM"', command)
    environment = os.environ | {"PROGRAM": PROGRAM, "PENSTOCK_HOME": str(ROOT), "LC_ALL": "C.UTF-8",
                                "COLUMNS": ""}  # lines stay whole
    done = subprocess.run(["bash", "-c", shell], cwd=ROOT, env=environment, text=True,
                          capture_output=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{command}\nended with {done.returncode}\n{done.stderr}")
    return done.stdout.rstrip("\n").split("\n")


def with_machine_times(new, old):
    """The lines of `new`, with the times of the machine that `old` shows."""
    known = MACHINE.findall("\n".join(old))
    return [MACHINE.sub(lambda m: known[0] if known else m[0], line) for line in new]


def rewritten(text):
    lines, out, at = text.split("\n"), [], 0
    while at < len(lines):
        out.append(lines[at])
        command = re.match(INDENT + r"\$ (\./penstock .*)", lines[at])
        at += 1
        if not command:
            continue
        end = at
        while end < len(lines) and (lines[end].startswith(INDENT) or not lines[end].strip()):
            if lines[end].startswith(INDENT + "$ "):
                break
            end += 1
        old = lines[at:end]
        while old and not old[-1].strip():
            old.pop()
        if not old:
            continue
        new = with_machine_times(printed(command[1]), old)
        out += [(INDENT + line).rstrip() for line in new]
        at += len(old)
    return "\n".join(out)


def evaluated(source, names):
    """What Python prints of it at its prompt."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, "<shown>", "single"), names)  # noqa: S102 - our own page
    return out.getvalue().rstrip("\n").split("\n") if out.getvalue() else []


def with_python(text):
    """The page with what its examples print below them; a page is one session."""
    lines, names, at, out = text.split("\n"), {}, 0, []
    for example in doctest.DocTestParser().get_examples(text):
        behind = example.lineno + example.source.count("\n")
        out += lines[at:behind]
        out += [(INDENT + line).rstrip() for line in evaluated(example.source, names)]
        at = behind + example.want.count("\n")
    return "\n".join(out + lines[at:])


ROWS = re.compile(r"<!-- rows of (\S+): (.*)\n((?:.*\n)+?)-->\n(?s:.*?)<!-- end of rows -->")


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def table_with(page, columns):
    """Returns the lines of the page's first table that has these columns."""
    for table in re.findall(r"(?:^\|.*\n)+", page, re.M):
        lines = table.splitlines()
        if set(columns) <= set(cells(lines[0])):
            return lines
    return sys.exit(f"no table has the columns {columns}")


def chosen_rows(match):
    columns, wanted = cells(match[2]), match[3].splitlines()
    head, rule, *rows = table_with((ROOT / match[1]).read_text(), columns)
    places = [cells(head).index(column) for column in columns]
    by_name = {cells(row)[0]: row for row in rows}
    missing = [name for name in wanted if name not in by_name]
    if missing:
        sys.exit(f"{match[1]} has no rows {missing}")
    out = [rule.strip("|").split("|")] + [cells(by_name[name]) for name in wanted]
    shown = [" | ".join(columns), *(" | ".join(row[place] for place in places) for row in out)]
    table = "\n".join(f"| {line} |" for line in shown)
    return f"<!-- rows of {match[1]}: {match[2]}\n{match[3]}-->\n\n{table}\n\n<!-- end of rows -->"


def has_package():
    sys.path.append(str(ROOT / "build" / "python"))
    return all(importlib.util.find_spec(name) for name in ("penstock", "numpy", "pandas"))


def main():
    check = "--check" in sys.argv[1:]
    pages = [pathlib.Path(page).resolve() for page in sys.argv[1:] if page != "--check"]
    different = 0
    for path in pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text()
        if "    $ ./penstock" not in text and "    >>> " not in text and "<!-- rows of " not in text:
            continue
        new = ROWS.sub(chosen_rows, rewritten(text))
        if "    >>> " in text:
            if has_package():
                new = with_python(new)
            else:
                print(f"{path.name}: the Python package or pandas is not there, its examples were not run")
        if new == text:
            continue
        different += 1
        if check:
            name = path.relative_to(ROOT).as_posix()
            sys.stdout.writelines(line + "\n" for line in difflib.unified_diff(
                text.split("\n"), new.split("\n"), name, "as printed now", lineterm=""))
        else:
            path.write_text(new)
    if check and different:
        print("scripts/shown_output.py writes them again")
    return 1 if check and different else 0


if __name__ == "__main__":
    sys.exit(main())
