#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which test cases a commit had that are gone, and with which change each went: scripts/test_names.py COMMIT

Names are those of the sources (TEST, TEST_F, TEST_P, TYPED_TEST; def test_...). A name that is gone was renamed, became a row of
a table of commands, or went with what it tested: the subject of the change that took it says which."""
import collections
import re
import subprocess
import sys

NAMES = re.compile(r"\b(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)|^ *def (test_\w+)", re.MULTILINE)


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, errors="replace").stdout


def names(commit):
    files = git("ls-tree", "-r", "--name-only", commit, "tests", "python").split()
    sources = (git("show", f"{commit}:{file}") for file in files if file.endswith((".cpp", ".py")))
    return collections.Counter(f"{suite}.{case}" if suite else function
                               for source in sources for suite, case, function in NAMES.findall(source))


def change_that_took(name, since):
    needle = name.split(".")[-1]
    return git("log", "-1", "--format=%h %s", f"-S{needle}", f"{since}..HEAD", "--", "tests", "python").strip()


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    since = sys.argv[1]
    before, now = names(since), names("HEAD")
    gone = sorted(before.keys() - now.keys())
    by_change = collections.defaultdict(list)
    for name in gone:
        by_change[change_that_took(name, since)].append(name)
    print(f"{before.total()} test cases at {since}, {now.total()} now; {len(gone)} names are gone:")
    for change, taken in by_change.items():
        print(f"\n{change or 'the case is there, its suite was renamed'}\n  " + "\n  ".join(taken))


if __name__ == "__main__":
    main()
