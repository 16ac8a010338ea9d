"""Python's values in the words of scenarios and command lines."""

import json
import os
from typing import Any, Dict, List, Mapping, Tuple


def text_of(value: Any) -> str:
    """As `--set` takes it.

    >>> text_of(True), text_of([1, 2]), text_of("100 Gbps"), text_of(None)
    ('true', '[1, 2]', '100 Gbps', 'null')
    """
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a scenario")


def changes_of(overrides: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """Keys and texts. A key with a dot is written with two underscores, or in a dict: what is in
    the dict of a key that is no model or cluster by itself is changed one by one.

    >>> changes_of({"microbatches": 32, "cluster__inter": "100 Gbps"})
    [('microbatches', '32'), ('cluster.inter', '100 Gbps')]
    """
    return [(key.replace("__", "."), text_of(value)) for key, value in overrides.items()]


def is_text(source: str) -> bool:
    """Is it YAML rather than the name of a scenario or file?

    >>> is_text("small-1f1b"), is_text("my.yaml"), is_text("{schedule: 1f1b}")
    (False, False, True)
    """
    return "\n" in source or source.lstrip().startswith("{") or ": " in source


def yaml_of(scenario: Mapping[str, Any]) -> str:
    """JSON is YAML; a line for each key, so that an error points at one."""
    lines: Dict[str, str] = {k: json.dumps(v, default=_plain) for k, v in scenario.items()}
    return "".join(f"{json.dumps(key)}: {text}\n" for key, text in lines.items())
