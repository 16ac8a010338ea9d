#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parts of the playground (build.sh): `assemble.py shipped FOLDER` writes what is shipped in the part of YAML
that is read there, `assemble.py page ENGINE.js INDEX.html` puts everything into one file."""
import json
import pathlib
import shutil
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent


def flow(value):
    """In flow style; scalars stay the texts that they are."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def scalar(text):
    plain = text and not set(text) & set("#:,[]{}\"'\\\n") and text == text.strip() and text[0] not in "&*!|>%@`-?"
    return text if plain else json.dumps(text, ensure_ascii=False) if text else "null"


def shipped(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted([*ROOT.glob("models/**/*.yaml"), *ROOT.glob("scenarios/**/*.yaml")]):
        document = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
        to = folder / path.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text("".join(f"{key}: {flow(value)}\n" for key, value in document.items())
                      if isinstance(document, dict) else "".join(f"- {flow(item)}\n" for item in document))
    for path in sorted(ROOT.glob("models/devices/kernels/*.json")):
        to = folder / path.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def page(engine, to):
    here = ROOT / "playground"
    text = (here / "page.html").read_text()
    for mark, part in (("/*css*/", here / "page.css"), ("/*engine*/", engine), ("/*page*/", here / "page.js")):
        content = part.read_text()
        if "</script" in content or "</style" in content:
            sys.exit(f"{part}: would end its element early")
        text = text.replace(mark, content)
    to.write_text(text)


def main():
    what, *paths = sys.argv[1:]
    {"shipped": shipped, "page": page}[what](*map(pathlib.Path, paths))


if __name__ == "__main__":
    main()
