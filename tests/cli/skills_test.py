#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks the questions of docs/skills/*.md: what a page reads of an answer is what the program prints.

A question is a heading `### ...?` of a page, with one command, a table of what is read of its JSON, and the answer in words,
which says each of these values:

        $ ./penstock simulate ... --format json

    | read | value |
    |---|--:|
    | `devices[0].peak_memory_bytes` | 61.66 GiB |

    Answer: ... 61.66 GiB ...

A path of several places (`stages[*].layers`) is a list with commas. Units are GiB, s, ms and %; a value has as many decimals as
are shown. `text` is a part of the output that is no JSON. UPDATE_GOLDEN=1 writes the values again, in the answer as well, and
skips; whether the sentences still hold is for a reader to say. Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE.
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
PAGES = SOURCE / "docs/skills"
UNITS = {"GiB": 2.0**-30, "ms": 1e3, "s": 1.0, "%": 100.0}
ENVIRONMENT = os.environ | {"PROGRAM": os.environ["PENSTOCK_BINARY"], "PENSTOCK_HOME": str(SOURCE), "LC_ALL": "C.UTF-8",
                            "ASAN_OPTIONS": "detect_leaks=0"}


@functools.lru_cache(maxsize=None)
def printed(command):
    shell = re.sub(r"(^|\| *)\./penstock\b", r'\1"$PROGRAM"', command)
    done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], cwd=SOURCE, env=ENVIRONMENT, text=True, capture_output=True,
                          timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{command}\nended with {done.returncode}\n{done.stderr}")
    return done.stdout


def questions(page):
    """Yields the title, the command, the rows (path, value) and the answer of each question."""
    for part in re.split(r"^### ", page, flags=re.M)[1:]:
        title, body = part.split("\n", 1)
        commands = re.findall(r"^    \$ (.*)$", body, re.M)
        rows = re.findall(r"^\| `([^`]+)` \| (.+?) \|$", body, re.M)
        yield title, commands, rows, " ".join(body.partition("\nAnswer: ")[2].split())


def at(value, path):
    """Returns what stands at the path: a value, or a list where the path has [*]."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+|\*)\]", path):
        if isinstance(value, list) and index == "*":
            rest = path.split("[*]", 1)[1].lstrip(".")
            return [at(member, rest) if rest else member for member in value]
        value = value[int(index)] if index else value[name]
    return value


def shown(value, like):
    """Returns the value in the form of `like`, which says its unit and decimals."""
    if isinstance(value, list):
        return ", ".join(shown(member, like.split(", ")[0]) for member in value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        form = re.fullmatch(r"-?[\d,]+(?:\.(\d+))?(?: (\S+))?", like)
        decimals, unit = (len(form[1] or ""), form[2]) if form else (3, None)
        number = f"{value * UNITS[unit] if unit else value:.{decimals}f}"
        return f"{number} {unit}" if unit else number
    return str(value)


def read(command, path, like):
    if path == "text":
        return like if like in printed(command) else "(not in the output)"
    return shown(at(json.loads(printed(command)), path), like)


def replaced(page, title, path, old, new):
    """Returns the page with the new value in the question's table and in its answer."""
    begin = page.index(f"### {title}")
    answer = page.index("\nAnswer: ", begin)
    end = page.find("\n### ", begin) % (len(page) + 1)
    table = page[begin:answer].replace(f"| `{path}` | {old} |", f"| `{path}` | {new} |")
    word = rf"(?<![\w.,-]){re.escape(old)}(?![\w%]|[.,]\d)"
    return page[:begin] + table + re.sub(word, lambda _: new, page[answer:end]) + page[end:]


class Skills(unittest.TestCase):
    def pages(self):
        found = sorted(PAGES.glob("*.md"))
        self.assertEqual(7, len(found))
        return [(path, path.read_text(encoding="utf-8")) for path in found]

    def test_each_page_is_a_skill_with_two_questions(self):
        index = (SOURCE / "docs/SKILL.md").read_text(encoding="utf-8")
        for path, text in self.pages():
            with self.subTest(path.name):
                self.assertRegex(text, r"\A---\nname: penstock-[\w-]+\ndescription: .+\n---\n")
                self.assertTrue(f"](skills/{path.name})" in index, "docs/SKILL.md does not link to it")
                asked = list(questions(text))
                self.assertEqual(2, len(asked))
                for title, commands, rows, answer in asked:
                    self.assertTrue(title.endswith("?"), title)
                    self.assertEqual(1, len(commands), title)
                    self.assertGreaterEqual(len(rows), 2, title)
                    for path_read, value in rows:
                        self.assertIn(value, answer, f"{title}: the answer does not say what `{path_read}` is")

    def test_answers_are_what_the_program_prints(self):
        update = "UPDATE_GOLDEN" in os.environ
        for path, text in self.pages():
            new = text
            for title, (command,), rows, _ in questions(text):
                for path_read, value in rows:
                    with self.subTest(f"{path.name}: {title} {path_read}"):
                        now = read(command, path_read, value)
                        if update:
                            new = replaced(new, title, path_read, value, now)
                        else:
                            self.assertEqual(value, now)
            if update:
                path.write_text(new, encoding="utf-8")
        if update:
            self.skipTest("docs/skills was rewritten")


class Forms(unittest.TestCase):
    def test_values_take_the_form_that_is_shown(self):
        self.assertEqual("61.66 GiB", shown(66204573696, "1.00 GiB"))
        self.assertEqual("22.1 %", shown(0.22119, "9.9 %"))
        self.assertEqual("982 ms", shown(0.98178, "1 ms"))
        self.assertEqual("0.909", shown(0.9086117, "1.000"))
        self.assertEqual("null", shown(None, "false"))
        self.assertEqual("3, 6", shown([3, 6], "1, 2"))
        page = "### A?\n\n| `a[4].b` | 4 |\n\nAnswer: 4 of 4.5 and 14.\n\n### B?\n\n| `c` | 4 |\n\nAnswer: 4\n"
        self.assertEqual(page.replace("b` | 4", "b` | 7").replace("4 of", "7 of"), replaced(page, "A?", "a[4].b", "4", "7"))
        self.assertEqual(page[:-2] + "7\n", replaced(page, "B?", "c", "4", "7").replace("`c` | 7", "`c` | 4"))
        self.assertEqual([0, 3], at({"a": [{"b": [{"c": 0}]}, {"b": [{"c": 3}]}]}, "a[*].b[0].c"))

    def test_a_wrong_value_is_found(self):
        title, (command,), rows, answer = next(questions("### Q?\n\n    $ ./penstock --version\n\n| `text` | none of it |\n\nAnswer: x\n"))
        self.assertEqual(("Q?", [("text", "none of it")], "x"), (title, rows, answer))
        self.assertNotEqual("none of it", read(command, *rows[0]))


if __name__ == "__main__":
    unittest.main()
