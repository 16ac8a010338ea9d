# SPDX-License-Identifier: Apache-2.0
"""Does a training job fit, how fast is it, and why: penstock from Python (docs/python.md)."""

from . import errors
from ._core import version as __version__
from .commands import (ReadScenario, Rows, calibrate, compare, plan, program, schedule, simulate,
                       sweep, train, validate)
from .foreign import from_hf, from_megatron, from_torch
from .errors import InputError, InternalBug, PenstockError
from .results import Result, Timeline

__all__ = ["InputError", "InternalBug", "PenstockError", "ReadScenario", "Result", "Rows",
           "Timeline", "__version__", "calibrate", "compare", "errors", "from_hf", "from_megatron",
           "from_torch", "plan", "program", "schedule", "simulate", "sweep", "train", "validate"]
