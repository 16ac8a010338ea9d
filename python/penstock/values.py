# SPDX-License-Identifier: Apache-2.0
"""Python's values in the words of scenarios and command lines."""

import json
import os
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from . import _core


def text_of(value: Any) -> str:
    """As `--set` takes it.

    >>> text_of(True), text_of([1, 2]), text_of("100 Gbps"), text_of(None)
    ('true', '[1, 2]', '100 Gbps', 'null')
    """
    return value if isinstance(value, str) else json_of(value)


def json_of(value: Any) -> str:
    """In characters themselves: YAML, which reads it, has no escape for one by its two halves.

    >>> json_of({"name": "\U0001f600"})
    '{"name": "\U0001f600"}'
    """
    return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}",
                          json.dumps(value, default=_plain, ensure_ascii=False))


#: DEL, C1, other ends of lines and what changes the direction of writing: as they are, a reader of
#: lines or a terminal may take them for its own.
_UNPRINTED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def value_of(key: str, value: Any) -> str:
    """The text of a value of a key. What is text for the scenario, too, such as a name, is quoted
    where YAML would read something else.

    >>> value_of("name", '"q"'), value_of("name", "1"), value_of("name", "my run"), value_of("stages", "4")
    ('"\\\\"q\\\\""', '"1"', 'my run', '4')
    """
    if not isinstance(value, str) or not _core.is_text_key(key):
        return text_of(value)
    return value if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else json_of(value)


#: Begins with a letter; a blank or colon is within.
_PLAIN = re.compile(r"[^\W\d_](?:[\w./'@+=-]|[ :](?=[\w./'@+=-]))*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "nan", "inf"}  #: which YAML may take for something else


def one_of_list(text: str) -> str:
    """A value between commas: quoted where it would be read as several.

    >>> one_of_list("it's"), one_of_list("a, b"), one_of_list("[1, 2]"), one_of_list("[")
    ("it's", '"a, b"', '[1, 2]', '"["')
    """
    closing = {"[": "]", "{": "}", '"': '"', "'": "'"}.get(text[:1])
    if closing is None:
        return json_of(text) if set(",[]{}") & set(text) else text
    return text if len(text) > 1 and text.endswith(closing) else json_of(text)


def range_of(values: Sequence[Any]) -> str:
    """Of whole numbers that are equally far apart, which may be many, the range; else "".

    >>> range_of(range(1, 100_001)), range_of([2, 4, 6, 8, 10]), range_of([1, 2, 4, 8])
    ('1:100000:+1', '2:10:+2', '')
    """
    if isinstance(values, range) and len(values) > 4 and values.step > 0:
        return f"{values[0]}:{values[-1]}:+{values.step}"
    few = len(values) < 5 or not all(type(value) is int for value in values)
    step = 0 if few else values[1] - values[0]
    same = step > 0 and all(b - a == step for a, b in zip(values, values[1:]))
    return f"{values[0]}:{values[-1]}:+{step}" if same else ""


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, range):
        return list(value)
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a scenario")


def changes_of(overrides: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """Keys and texts. A key with a dot is written with two underscores, or in a dict: what is in
    the dict of a key that is no model or cluster by itself is changed one by one.

    >>> changes_of({"microbatches": 32, "cluster__inter": "100 Gbps"})
    [('microbatches', '32'), ('cluster.inter', '100 Gbps')]
    """
    keys = ((key.replace("__", "."), value) for key, value in overrides.items())
    return [(key, value_of(key, value)) for key, value in keys]


def is_text(source: str) -> bool:
    """Is it YAML rather than the name of a scenario or file?

    >>> is_text("small-1f1b"), is_text("my.yaml"), is_text("{schedule: 1f1b}")
    (False, False, True)
    """
    return "\n" in source or source.lstrip().startswith("{") or ": " in source


def yaml_of(scenario: Mapping[str, Any]) -> str:
    """JSON is YAML; a line for each key, so that an error points at one."""
    lines: Dict[str, str] = {k: json_of(v) for k, v in scenario.items()}
    return "".join(f"{json_of(key)}: {text}\n" for key, text in lines.items())
