#!/usr/bin/env python3
"""Writes what README.md and docs/ show of commands: each block that begins with `$ ./penstock ...`,
and of Python: what stands below `>>>`.

  scripts/shown_output.py [--check]

A block is indented by four spaces; what stands below the command up to the next one, or to the end of
the block, is what it prints. Commands without output there are instructions and are not run. Times of
the machine ("21.9 ms CPU") stay as they are. --check changes nothing, shows what differs and ends
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


def has_package():
    sys.path.append(str(ROOT / "build" / "python"))
    return all(importlib.util.find_spec(name) for name in ("penstock", "numpy", "pandas"))


def main():
    check = "--check" in sys.argv[1:]
    different = 0
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        if "    $ ./penstock" not in text and "    >>> " not in text:
            continue
        new = rewritten(text)
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
