"""The variables of functions that run, looked at without leaving a trace in them."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

_LOOKS_AT_ITSELF = frozenset({"locals", "vars"})
_REWRITTEN_BY_PYTEST = "@py_builtins"
"""A name in code whose asserts pytest has rewritten; it calls `locals` where one fails, and keeps nothing."""

_REFERENCES_OF_NOBODY_ELSE = 3
"""To the dict of a frame's variables: the frame, our variable, the argument of getrefcount."""


def variables_of(frame: FrameType) -> dict[str, Any]:
    """Return a copy of the variables of `frame`, leaving nothing behind in it.

    Before Python 3.13 a function's frame keeps the dict that `f_locals` makes, and with it every variable's value, for
    as long as the function runs: a batch, or a loss with its graph. So that dict is emptied again, which leaves the
    variables themselves alone. A function that may hold its own `locals()` shares the dict and is not looked at.
    """
    kept = sys.version_info < (3, 13) and bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
    names = set(frame.f_code.co_names)
    if kept and names & _LOOKS_AT_ITSELF and _REWRITTEN_BY_PYTEST not in names:
        return {}
    variables = frame.f_locals
    copy = dict(variables)
    if kept and sys.getrefcount(variables) <= _REFERENCES_OF_NOBODY_ELSE:
        variables.clear()
    return copy
