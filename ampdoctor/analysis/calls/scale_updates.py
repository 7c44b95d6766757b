"""How a scaler moved its scale, update by update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run


@dataclass(frozen=True)
class ScaleUpdate:
    """One `update()` of a scaler: growth, backoff or hold, with the scale before and after it.

    What a user sets by hand is no decision of the scaler's, and no update here.
    """

    step: int
    event: str
    before: float
    after: float


@once_per_run
def scale_updates(run: Run) -> dict[str, list[ScaleUpdate]]:
    """Return what each scaler's updates did, in order, by scaler."""
    updates: dict[str, list[ScaleUpdate]] = {}
    for row in run.scaler:
        if row.event in {"growth", "backoff", "hold"} and None not in (row.scale, row.scale_after):
            update = ScaleUpdate(row.step, row.event, row.scale or 0.0, row.scale_after or 0.0)
            updates.setdefault(row.scaler, []).append(update)
    return updates
