# SPDX-License-Identifier: Apache-2.0
"""What a simulation came to: the fields of `penstock simulate --format json`, and its timeline."""

import dataclasses
import html
from typing import Any, Dict

from . import _core

_FIELDS = _core.result_fields()
_NUMBERS = {}  # of the fields, by name; of those with dots, one by one
for _i, (_name, *_rest) in enumerate(_FIELDS):
    _NUMBERS.setdefault(_name.partition(".")[0], []).append(_i)


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Every op of a run, device by device, in the order in which each runs its own.

    Arrays of NumPy of the same length, which show the simulation's memory and cannot be written
    to; `device` alone is made when it is asked for.
    """

    start: Any  #: seconds
    end: Any  #: seconds
    kind: Any  #: number of `kinds`
    stage: Any
    microbatch: Any  #: of a STEP or REDUCE_GRAD the update
    _ends: Any = dataclasses.field(repr=False)

    kinds = tuple(_core.kinds)

    @property
    def device(self) -> Any:
        import numpy

        counts = numpy.diff(numpy.asarray(self._ends, dtype=numpy.uint32), prepend=numpy.uint32(0))
        return numpy.repeat(numpy.arange(len(counts), dtype=numpy.uint32), counts)

    def __len__(self) -> int:
        return len(self.start)


class _Lazy:
    """Fields are computed when they are first asked for: numbers cost microseconds, what would help
    and the critical path much more."""

    def __init__(self, run: "_core.Run"):
        self._run = run

    def __getattr__(self, name: str) -> Any:
        if name not in _NUMBERS or "_run" not in self.__dict__:
            raise AttributeError(f"a result has no '{name}'")
        value = _of_fields(self._run, name)
        if value is ...:
            value = None
        object.__setattr__(self, name, value)
        return value

    @property
    def timeline(self) -> Timeline:
        columns = self._run.timeline()
        return Timeline(**{k: v for k, v in columns.items() if k != "ends_of_devices"},
                        _ends=columns["ends_of_devices"])

    def to_dict(self) -> Dict[str, Any]:
        """As the command's JSON has it."""
        return self._run.json()

    def scenario_text(self) -> str:
        """What was simulated as YAML, the overrides applied."""
        return self._run.scenario()

    def report(self) -> str:
        """The page of `simulate --report`: needs no network and no other file."""
        return self._run.report()

    def _repr_html_(self) -> str:
        page = html.escape(self.report(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="640" style="border:0"></iframe>'


def _of_fields(run, name):
    numbers = _NUMBERS[name]
    if "." not in _FIELDS[numbers[0]][0]:
        return run.value(numbers[0])
    return {_FIELDS[i][0].partition(".")[2]: run.value(i) for i in numbers}


#: A dataclass with a field for each of the table in results/fields.cpp.
Result = dataclasses.make_dataclass(
    "Result", [(name, Any, dataclasses.field(init=False)) for name in _NUMBERS],
    bases=(_Lazy,), init=False, eq=False, repr=False)
Result.__module__ = __name__
Result.__doc__ = """What a simulation came to. The fields are those of docs/metrics.md; what the
command's JSON leaves out is None.

>>> import penstock
>>> result = penstock.simulate("small-1f1b", engine="exact")
>>> result.feasible, round(result.bubble_fraction, 3)
(True, 0.415)
"""


def _show(self) -> str:
    time = self.iteration_time_s
    time = "never" if time is None else f"{time:.6g}"
    return (f"Result(scenario={self.scenario!r}, schedule={self.schedule!r}, "
            f"feasible={self.feasible}, iteration_time_s={time}, "
            f"bubble_fraction={self.bubble_fraction:.4g}, ...)")


Result.__repr__ = _show
