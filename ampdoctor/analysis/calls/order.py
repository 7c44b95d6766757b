"""The order of AMP calls, and which optimizers a backward pass reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.trace.schema.calls import STEPS

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, ScalerRow


def when(row: CallRow | ScalerRow) -> tuple[int, int]:
    """Return when a call was made or a scaler did something, in the order that both share."""
    return row.step, row.seq


@once_per_run
def calls_in_order(run: Run) -> tuple[CallRow, ...]:
    """Return all calls in the order in which they were made; rows are in that in which their steps were written."""
    table, calls = run.table("calls"), run.calls
    order = np.lexsort((table["seq"].to_numpy(), table["step"].to_numpy()))
    return tuple(calls[place] for place in order.tolist())


@once_per_run
def _by_name(run: Run) -> dict[str, tuple[CallRow, ...]]:
    found: dict[str, list[CallRow]] = {}
    for call in run.calls:
        found.setdefault(call.call, []).append(call)
    return {name: tuple(calls) for name, calls in found.items()}


def calls_named(run: Run, name: str) -> tuple[CallRow, ...]:
    """Return the calls of one kind, `backward` for instance, as recorded."""
    return _by_name(run).get(name, ())


def source_of(call: CallRow) -> str | None:
    """Return `file:line` of the user's code that made `call`."""
    return f"{call.file}:{call.line}" if call.file and call.line is not None else None


@once_per_run
def reach_of(run: Run) -> Reach:
    """Return which optimizers the backward passes of `run` reach."""
    return Reach(run)


class Reach:
    """Which optimizers a backward pass reaches: as recorded, as its line always did, or the only one there is."""

    def __init__(self, run: Run) -> None:
        self.stepped = sorted({c.target for name in STEPS for c in calls_named(run, name) if c.target})
        self.only = self.stepped[0] if len(self.stepped) == 1 else None
        self._by_line: dict[tuple[str | None, int | None], frozenset[str]] = {}
        for call in calls_named(run, "backward"):
            # One that reaches none, of master weights that get copies of the gradients, is known to reach none.
            if call.optimizers is not None:
                reached = frozenset(call.optimizers)
                key = (call.file, call.line)
                # A helper's line may reach now these and now those: then only what it always reaches is known.
                self._by_line[key] = self._by_line.get(key, reached) & reached

    def of(self, call: CallRow) -> frozenset[str]:
        """Return the optimizers that the backward pass `call` reaches, as far as is known."""
        if call.optimizers is not None:
            return frozenset(call.optimizers)
        only = frozenset({self.only} if self.only else ())
        return self._by_line.get((call.file, call.line), only)
