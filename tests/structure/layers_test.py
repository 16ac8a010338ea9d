#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scans `#include "room/..."` edges and fails on one that the layer table does not allow, on a
library used outside of its room, on a header without an opening comment, on two headers that name a
type or a constant alike (in one program that is undefined behaviour which no tool reports), and on a
test that no meson.build names, which nobody would ever run."""
import collections
import pathlib
import re
import sys

ALLOWED = {
    "base": set(),
    "program": {"base"},
    "models": {"base", "program"},
    "schedules": {"base", "program"},
    "traces": {"base", "program"},
    "report": {"base", "traces"},
    "sim": {"base", "program", "models", "traces"},
    "hw": {"base", "program", "models", "schedules", "traces"},
    "plan": {"base", "program", "models"},
    "scenarios": {"base", "program", "models", "schedules", "sim"},
    "results": {"base", "program", "models", "schedules", "traces", "sim", "scenarios"},
    "validate": {"base", "program", "models", "traces", "sim", "hw", "report", "scenarios", "results"},
    "plan/search": {"base", "program", "schedules", "traces", "scenarios", "results", "plan"},
    "sweep": {"base", "traces", "scenarios", "results"},
    "cli": {"base", "program", "models", "schedules", "traces", "sim", "hw", "validate", "scenarios", "results",
            "sweep", "report", "plan", "plan/search"},
    "python": {"base", "scenarios", "results", "plan/search", "sweep", "cli"},
    "playground": {"base", "schedules", "sim", "scenarios", "results", "cli"},
}
# Header prefix -> the only places that may include it.
LIBRARIES = {
    "simgrid/": ("sim/simgrid/",),
    "yaml-cpp/": ("scenarios/document.cpp", "playground/shims/"),
    "boost/program_options": ("cli/",),
    "zlib.h": ("traces/",),
    "pybind11/": ("python/",),
    "sqlite3.h": ("sweep/sqlite_output.cpp",),
    "gloo/": ("hw/host/",),
    "cblas.h": ("hw/host/",),
    "cuda": ("hw/cuda/", "hw/row_kernels.hpp"),
    "cublasLt.h": ("hw/cuda/",),
    "nccl.h": ("hw/cuda/",),
    "sys/socket.h": ("hw/",),
    "netinet/": ("hw/",),
    "arpa/inet.h": ("hw/",),
}
DEFINED = re.compile(
    r"^(?:(?:struct|class|enum class) (\w+)(?!\w*::)[^;()]*(?:\{|$)|inline constexpr [^=({]*?(\w+)(?:\[\d*\])? *=)", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def files_of(root, room):
    """Sources of a room without those of the rooms inside it."""
    inside = tuple(f"{other}/" for other in ALLOWED if other.startswith(f"{room}/"))
    for path in sorted((root / room).rglob("*.[ch]pp")):
        if not path.relative_to(root).as_posix().startswith(inside):
            yield path


def room_of(target):
    """The innermost room that a header lies in."""
    return max((room for room in ALLOWED if target.startswith(f"{room}/")), key=len,
               default=target.split("/")[0])


def violations(root):
    for room, allowed in ALLOWED.items():
        for path in files_of(root, room):
            name = path.relative_to(root).as_posix()
            text = path.read_text()
            if path.suffix == ".hpp" and not re.sub(r"\A// SPDX-.*\n", "", text).startswith("//"):
                yield f"{name}: opens without a comment that says its idea"
            for kind, target in INCLUDE.findall(text):
                if kind == '"':
                    other = room_of(target)
                    if not (root / target).exists():
                        yield f"{name}: '{target}' is not rooted at the repository"
                    elif other not in {room, *allowed}:
                        yield f"{name}: {room} may not use {other} ({target})"
                for prefix, places in LIBRARIES.items():
                    if target.startswith(prefix) and not name.startswith(places):
                        yield f"{name}: {target} belongs to {', '.join(places)}"


def defined_twice(root):
    headers = collections.defaultdict(set)
    for room in ALLOWED:
        for path in files_of(root, room):
            if path.suffix == ".hpp":
                for names in DEFINED.findall(path.read_text()):
                    headers["".join(names)].add(path.relative_to(root).as_posix())
    for name, places in sorted(headers.items()):
        if len(places) > 1:
            yield f"{name} is defined in {' and in '.join(sorted(places))}"


def tests_never_run(root):
    for path in sorted((root / "tests").rglob("*_test.*")):
        if path.suffix not in (".cpp", ".py", ".sh", ".mjs"):
            continue
        folder = path.parent
        while not (folder / "meson.build").exists():
            folder = folder.parent
        listed = (folder / "meson.build").read_text()
        names = (path.name, f"'{path.stem}'", f"'{path.stem.removesuffix('_test')}'")
        if "node_modules" not in path.parts and not any(name in listed for name in names):
            yield f"{path.relative_to(root).as_posix()}: no meson.build names this test"


def main():
    root = pathlib.Path(sys.argv[1])
    found = [*violations(root), *defined_twice(root), *tests_never_run(root)]
    unknown = [r for r in ALLOWED if not (root / r).is_dir()]
    print("\n".join(found + [f"room {r} is missing" for r in unknown]))
    return 1 if found or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
