"""Remember what was worked out of a run, for as long as the run lives: several rules ask the same."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.trace.run import Run

_Result = TypeVar("_Result")


def once_per_run(function: Callable[[Run], _Result]) -> Callable[[Run], _Result]:
    """Return `function` with its result kept per run. A `Run` never changes, so it need be worked out once."""
    known: WeakKeyDictionary[Run, _Result] = WeakKeyDictionary()

    @wraps(function)
    def remembered(run: Run) -> _Result:
        if run not in known:
            known[run] = function(run)
        return known[run]

    return remembered
