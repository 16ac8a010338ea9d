#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes python/penstock/__init__.pyi from the tables of results and of commands.

  PYTHONPATH=build/python scripts/python_stubs.py [--check]
"""
import pathlib
import sys

from penstock import _core

FILE = pathlib.Path(__file__).resolve().parent.parent / "python/penstock/__init__.pyi"
TYPES = {"boolean": "bool", "integer": "int", "number": "float", "string": "str", "any": "Any"}
SOURCES = {"compare": "*scenarios: Scenario", "schedule": "name: str", "plan": "source: Scenario",
           "sweep": "*scenarios: Scenario", "train": "*scenarios: Scenario", "validate": "*files: Any", "calibrate": "source: Any = ..."}
RETURNED = {"compare": "List[Dict[str, Any]]", "sweep": "Rows", "train": "List[Dict[str, Any]]", "validate": "Any"}
COMMANDS = {"schedule": "schedule show"}
HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Written by scripts/python_stubs.py.
import os
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union
from concurrent.futures import Executor

from . import errors as errors
from .commands import ReadScenario as ReadScenario, Rows as Rows, program as program
from .errors import InputError as InputError, InternalBug as InternalBug, PenstockError as PenstockError
from .foreign import from_hf as from_hf, from_megatron as from_megatron, from_torch as from_torch
from .results import Timeline as Timeline

__version__: str
Scenario = Union[str, "os.PathLike[str]", Mapping[str, Any], ReadScenario]
'''


def result():
    lines, seen = ["class Result:"], {}
    for name, kind, nullable, unit, meaning in _core.result_fields():
        whole = name.partition(".")[0]
        if whole in seen:
            continue
        seen[whole] = True
        kind = TYPES[kind] if whole == name else f"Dict[str, {TYPES[kind]}]"
        lines.append(f"    {whole}: {f'Optional[{kind}]' if nullable and kind != 'Any' else kind}")
    return lines + ["    @property", "    def timeline(self) -> Timeline: ...", "    def to_dict(self) -> Dict[str, Any]: ...",
                    "    def scenario_text(self) -> str: ...", "    def report(self) -> str: ...", "    def _repr_html_(self) -> str: ..."]


def type_of(value, choices, repeated):
    if not value:
        return "bool"
    words = choices.split("|") if "|" in choices else []
    one = f"Literal[{', '.join(map(repr, words))}]" if words else "Any"
    return f"Union[{one}, Sequence[{one}]]" if repeated and words else one


def function(name):
    _, _, _, options = _core.command_table()[COMMANDS.get(name, name)]
    lines = [f"def {name}(", f"    {SOURCES[name]},"] + ["    *,"] * ("*" not in SOURCES[name])
    if name in ("plan", "sweep"):
        lines.append("    executor: Optional[Executor] = ...,")
    for option, value, choices, repeated, _ in options:
        if option in ("format", "help", "set", "on"):
            continue
        default = "" if (name, option) == ("sweep", "over") else " = ..."
        lines.append(f"    {option.replace('-', '_')}: {type_of(value, choices, repeated)}{default},")
    return lines + ["    **keys: Any,", f") -> {RETURNED.get(name, 'Dict[str, Any]')}: ..."]


def text():
    engines = next(c for n, _, c, _, _ in _core.command_table()["simulate"][3] if n == "engine").split("|")
    lines = [*result(), "", "def simulate(", "    scenario: Scenario,", "    *,",
             f"    engine: Literal[{', '.join(map(repr, engines))}] = ...,", "    **keys: Any,", ") -> Result: ..."]
    for name in SOURCES:
        lines += function(name)
    return HEAD + "\n" + "\n".join(lines) + "\n"


def main():
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text())
    elif FILE.read_text() != text():
        print(f"{FILE.name} is not what the tables say: scripts/python_stubs.py writes it again")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
