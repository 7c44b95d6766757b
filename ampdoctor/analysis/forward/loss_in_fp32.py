"""The loss of a twin step in the run, with the same outputs in FP32, and with the whole model in FP32."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING

from ampdoctor.analysis.forward.operations import Origin, operations
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.measurement import FP32, RUN
from ampdoctor.analysis.twins.opinions import twin_rows
from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

LOSS_ALONE = "fp32:loss"
"""The setting in which the run's result of every operation that has weights in it is taken over."""


@dataclass(frozen=True)
class TwinnedLoss:
    """The loss of one step.

    Attributes:
        step: the step.
        run: what the run computed.
        same_outputs: what FP32 makes of the run's own outputs.
        fp32: what the model in FP32 ends in; None where that is not known.
    """

    step: int
    run: float
    same_outputs: float
    fp32: float | None

    @property
    def error(self) -> float:
        """How far the run's is from that of the same outputs in FP32, as a share of it."""
        difference = abs(self.run - self.same_outputs)
        if not difference:
            return 0.0
        return difference / abs(self.same_outputs) if self.same_outputs else inf


@once_per_run
def twinned_losses(run: Run) -> tuple[TwinnedLoss, ...]:
    """Return the losses of twin steps that are finite in the run and in FP32, in order."""
    by_step: dict[int, dict[str, float]] = {}
    for row in twin_rows(run):
        if row.role == "loss" and row.value is not None:
            values = by_step.setdefault(row.step, {})
            values[row.counterfactual] = values.get(row.counterfactual, 0.0) + row.value
    return tuple(
        TwinnedLoss(step, values[RUN], values[LOSS_ALONE], values.get(FP32))
        for step, values in sorted(by_step.items())
        if isfinite(values.get(RUN, inf)) and isfinite(values.get(LOSS_ALONE, inf))
    )


def last_in_half(run: Run, step: int) -> Origin | None:
    """Return the last operation of the forward of `step` that ends in half: what the loss comes from."""
    rows = [
        r
        for r in operations(run).get(step, ())
        if r.direction == "forward" and HALF_DTYPES & set(r.dtype_out.split(",")) and "_to_copy" not in r.op
    ]
    last = max(rows, key=lambda r: r.seq, default=None)
    return None if last is None else Origin(last, last.seq)
