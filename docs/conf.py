# SPDX-License-Identifier: Apache-2.0
# The site that scripts/site.sh makes of README.md, docs/ and the pages beside README. The sources are the whole tree, so that
# links from one page to another, to a scenario and to a source lead to the same file here and on GitHub.
import os
import re

project = "penstock"
author = "the contributors of penstock"
root_doc = "docs/index"
extensions = ["myst_parser"]
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "models/README.md", "docs/**.md"]
myst_heading_anchors = 6  # those of GitHub
suppress_warnings = ["myst.header"]  # pages may leave out a level of headings
highlight_language = "none"  # indented blocks are commands, YAML and tables
html_theme = "furo"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_title = "penstock"
html_show_sphinx = False
html_copy_source = False

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([\w./-]+)\)")


def contents(text):
    """Returns what fills the side of the site: of each section of an index the pages that it links to."""
    seen, out = set(), ""
    for section in re.split(r"^## ", text, flags=re.M):
        pages = [link[:-3] for _, link in LINK.findall(section) if link.endswith(".md")]
        pages = [page for page in dict.fromkeys(pages) if page not in seen]
        seen.update(pages)
        caption = section.split("\n", 1)[0].lstrip("# ").split(":")[0]
        out += "\n\n".join(["", "```{toctree}\n:hidden:\n:caption: " + caption, "\n".join(pages)]) + "\n```\n" if pages else ""
    return out


def adapted(app, name, source):
    """Shows links to folders, which a site cannot list, as text, and gives indexes a table of contents."""
    folder = os.path.join(app.srcdir, os.path.dirname(name))
    text = source[0]
    source[0] = LINK.sub(lambda link: link[1] if os.path.isdir(os.path.join(folder, link[2])) else link[0], text)
    if os.path.basename(name) == "index":
        source[0] += contents(text)


def setup(app):
    app.connect("source-read", adapted)
