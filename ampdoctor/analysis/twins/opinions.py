"""The rows of second opinions that count: nothing is judged by what one left behind that failed midway.

Rows are queued while the second opinion is under way. One that ends in an error, or runs out of memory, leaves those
that it had come to: of some gradients and not of others, and it may be of the operation that was wrong. Nothing else in
`analysis` reads `run.twins` and `run.ops`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow, TwinRow, TwinStepRow

LESS_THAN_PLANNED = re.compile(r"too little free memory for .+|[^;]+ \(x\d+\)(; [^;]+ \(x\d+\))*")
"""Reasons that say what was left out of a second opinion which is sound for the rest: settings that there was no memory
for, calls that a replay could not execute."""


@once_per_run
def twin_rows(run: Run) -> tuple[TwinRow, ...]:
    """Return what carried twins and replays measured, in order; at a loss scale that is none, nothing was."""
    left_out = _failed(row for row in run.twin_steps if row.kind != "local")
    return tuple(row for row in run.twins if row.step not in left_out and _scaled(row.loss_scale))


def _scaled(scale: float | None) -> bool:
    return scale is None or 0.0 < scale < math.inf


@once_per_run
def op_rows(run: Run) -> tuple[OpRow, ...]:
    """Return the operations that local twins looked at, in order."""
    left_out = {
        "live": _failed(row for row in run.twin_steps if row.kind != "replay"),
        "replay": _failed(row for row in run.twin_steps if row.kind == "replay"),
    }
    return tuple(row for row in run.ops if row.step not in left_out.get(row.source, ()))


def _failed(opinions: Iterable[TwinStepRow]) -> set[int]:
    """Return the steps whose rows must not be used: none of their opinions counts, or one that broke has left rows.

    A replay that did not come out as the step had ends before it has rows; one that never began has none either.
    """
    known = tuple(opinions)
    counting = {row.step for row in known if _counts(row)}
    broken = {row.step for row in known if not _counts(row) and row.confirmed is not False and row.operations > 0}
    return ({row.step for row in known} - counting) | broken


def _counts(row: TwinStepRow) -> bool:
    sound = row.declined is None or LESS_THAN_PLANNED.fullmatch(row.declined) is not None
    return sound and row.confirmed is not False
