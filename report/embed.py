#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the parts of a report's page strings of a C++ file: embed.py OUT.cpp LIBRARY.js PAGE...

PAGE are our scripts, put into one in this order, and style sheets, by their names' ending."""
import base64
import hashlib
import pathlib
import sys

PIECE = 16_000  # characters; compilers must take 65,536 bytes
DELIMITER = "penstock"


def pieces(text):
    for at in range(0, len(text), PIECE):
        yield f'R"{DELIMITER}({text[at:at + PIECE]}){DELIMITER}"'


def function(name, text):
    if f"){DELIMITER}" in text or "</script" in text:
        sys.exit(f"{name}: holds ')penstock' or '</script', which would end it early")
    listed = ",\n".join(f"{piece}sv" for piece in pieces(text))
    return f"std::vector<std::string_view> {name}() {{\n  return {{{listed}}};\n}}\n"


def csp_hash(name, text):
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f'const std::string_view {name} = "sha256-{digest}";\n'


def main():
    out, library, *parts = map(pathlib.Path, sys.argv[1:])
    read = lambda ending: "\n".join(p.read_text() for p in parts if p.suffix == ending)
    page = '"use strict";\n(() => {\n' + read(".js") + "})();\n"
    text = library.read_text()
    out.write_text(
        '#include "report/embedded.hpp"\n\nnamespace penstock::embedded {\n'
        "using namespace std::string_view_literals;\n"
        + function("style", read(".css")) + function("library", text) + function("page", page)
        + csp_hash("kLibraryHash", text) + csp_hash("kPageHash", page) + "}\n")


if __name__ == "__main__":
    main()
