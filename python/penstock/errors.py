# SPDX-License-Identifier: Apache-2.0
"""What penstock raises: an input that is wrong (`InputError`), a system that refused
(`SystemError`), a mistake of ours (`InternalBug`)."""

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

_SUGGESTED = re.compile(r"did you mean '([^']*)'")


class Diagnostic(NamedTuple):
    """One thing wrong with an input."""

    file: str  #: or what else it came from: a flag, "scenario" for a dict
    line: int  #: 1-based; 0: the whole of it
    column: int
    message: str
    rendered: str  #: with the line and a caret below the place

    @property
    def suggestion(self) -> Optional[str]:
        """What was probably meant."""
        found = _SUGGESTED.search(self.message)
        return found[1] if found else None


class PenstockError(Exception):
    """Any of these."""


class InputError(PenstockError, ValueError):
    """A scenario, an option or a file is wrong. Everything that is wrong is in `diagnostics`; the
    attributes are those of the first."""

    def __init__(self, diagnostics: Sequence[Tuple[str, int, int, str, str]]):
        self.diagnostics: List[Diagnostic] = [Diagnostic(*d) for d in diagnostics]
        super().__init__("\n".join(d.rendered for d in self.diagnostics))

    file = property(lambda self: self.diagnostics[0].file)
    line = property(lambda self: self.diagnostics[0].line)
    column = property(lambda self: self.diagnostics[0].column)
    suggestion = property(lambda self: self.diagnostics[0].suggestion)

    def __reduce__(self):
        return type(self), ([tuple(d) for d in self.diagnostics],)


class SystemError(PenstockError, RuntimeError):  # noqa: A001 - as the program calls it
    """The operating system, a driver or a process refused."""


class InternalBug(PenstockError, RuntimeError):
    """Please report it with the scenario."""
