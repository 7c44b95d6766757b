"""The loss curve in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.scaling import loss_scaling
from ampdoctor.analysis.loss import loss_curve
from ampdoctor.analysis.wording import counted, number
from ampdoctor.finding import Evidence

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run


def loss_evidence(run: Run) -> list[Evidence]:
    """Return where the loss started and ended, as backward saw it."""
    curve = loss_curve(run)
    if curve.start is None or curve.end is None or not curve.start:
        return []
    factor = loss_scaling(run).total_factor
    what = "The loss" if factor == 1.0 else f"The loss, multiplied by {number(factor)} in code,"
    text = f"{what} went from {number(curve.start)} to {number(curve.end)} over {counted(len(run.steps), 'step')}."
    return [Evidence("loss_end_over_start", curve.end / curve.start, text)]
