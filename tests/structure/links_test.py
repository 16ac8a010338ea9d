#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the relative links of every page (*.md) of the tree: the file is there, and so is the heading behind `#`.

Addresses on the web are not asked for. Anchors are those that GitHub gives to headings; docs/conf.py makes the same.
"""
import os
import pathlib
import re
import tempfile
import unittest
import urllib.parse

ROOT = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
LEFT_OUT = re.compile(r"build.*|node_modules|__pycache__|\.(?!github$).*")  # folders
INLINE = re.compile(r"\]\(\s*<?([^)\s>]*)>?(?:\s+[\"'(][^)]*)?\)")
DEFINED = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)", re.M)
HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=\"([^\"]*)\"")


def pages(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not LEFT_OUT.fullmatch(name))
        yield from (pathlib.Path(folder) / name for name in sorted(files) if name.endswith(".md"))


def without_code(text):
    """Returns the page without its fenced and indented blocks, which are shown and not followed."""
    text = re.sub(r"^( {0,3})(```+|~~~+).*?^ {0,3}\2[`~]*\s*?$", "", text, flags=re.M | re.S)
    return re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.M)


def without_code_spans(text):
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text, flags=re.S)


def anchors(text):
    """Returns the names that GitHub gives to the headings, and those that the page gives itself."""
    seen, names = {}, set(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*\s*$", without_code(text), re.M):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        names.add(f"{name}-{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, 0) + 1
    return names


def links(text):
    body = without_code_spans(without_code(text))
    return INLINE.findall(body) + DEFINED.findall(body) + HTML.findall(body)


def why_dead(page, link, root):
    """Returns why the link leads nowhere, or nothing."""
    if re.match(r"[a-z][a-z0-9+.-]*:", link, re.I):
        return None
    path, _, anchor = urllib.parse.unquote(link).partition("#")
    target = pathlib.Path(os.path.normpath(page.parent / path)) if path else page
    if not path and not anchor:
        return "the link is empty"
    if path.startswith("/") or not target.is_relative_to(root):
        return "it leaves the tree"
    if not target.exists():
        return "there is no such file"
    if not anchor:
        return None
    if target.suffix == ".md":
        return None if anchor in anchors(target.read_text(encoding="utf-8")) else "the page has no such heading"
    return None if re.fullmatch(r"L\d+(-L\d+)?", anchor) else "only pages have headings"


def dead(root):
    return [f"{page.relative_to(root)}: {link}: {why}" for page in pages(root)
            for link in links(page.read_text(encoding="utf-8")) if (why := why_dead(page, link, root))]


class Links(unittest.TestCase):
    def test_no_link_is_dead(self):
        self.assertGreater(sum(len(links(page.read_text(encoding="utf-8"))) for page in pages(ROOT)), 100)
        self.assertEqual([], dead(ROOT))

    def test_every_page_of_docs_is_in_an_index(self):
        """docs/index.md, or the index.md of a folder of docs, which it lists itself."""
        listed = {os.path.normpath(index.parent / link.partition("#")[0]) for index in (ROOT / "docs").rglob("index.md")
                  for link in links(index.read_text(encoding="utf-8"))}
        self.assertEqual([], [str(page.relative_to(ROOT)) for page in pages(ROOT / "docs")
                              if page != ROOT / "docs/index.md" and str(page) not in listed])


class DeadLinksAreFound(unittest.TestCase):
    def test_each_kind(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "sub").mkdir()
            (root / "other.md").write_text("# A `heading`, of two words\n\n    # no heading\n\n## Twice\n\n## Twice\n")
            (root / "code.cpp").write_text("int x;\n")
            alive = ["[a](other.md)", "[a](other.md#a-heading-of-two-words)", "[a](other.md#twice-1)", "[b](sub)", "[w](https://x.invalid)",
                     "[here](#top)", "[c](code.cpp#L1)", "![i](code.cpp 'title')", "`[no](link.md)`", "    [code](none.md)",
                     "[r]: other.md", "<img src=\"code.cpp\">"]
            (root / "page.md").write_text("# Top\n\n" + "\n\n".join(alive) + "\n\n```\n[fenced](none.md)\n```\n")
            self.assertEqual([], dead(root))
            for link in ["[a](none.md)", "[a](other.md#no-heading)", "[a](other.md#twice-2)", "[a](sub/../../outside.md)", "[a](/etc/passwd)",
                         "[a](#none)", "[a]()", "[a](code.cpp#x)", "[![i](none.png)](other.md)", "[r]: none.md", "<img src=\"none.png\">",
                         "[two\nlines](none.md)"]:
                with self.subTest(link):
                    (root / "page.md").write_text(f"# Top\n\n{link}\n")
                    self.assertEqual(1, len(dead(root)), dead(root))



if __name__ == "__main__":
    unittest.main()
