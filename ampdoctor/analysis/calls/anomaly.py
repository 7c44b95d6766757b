"""Autograd's anomaly mode has raised: was it the loss scale that made the NaN?

A scaler that calibrates tries scales that are too large on purpose, skips the steps that overflow and comes down.
Anomaly mode does not know that: it raises at the first NaN that an infinite scaled gradient turns into.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.gradient_range import gradient_range
from ampdoctor.analysis.calls.error_messages import ANOMALY
from ampdoctor.analysis.calls.exceptions import Failure, matching
from ampdoctor.analysis.calls.order import when
from ampdoctor.formats import FP16

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow

ONE_OPERATION = 2.0**10
"""A gradient grows within one operation by the sums it makes: over a thousand terms all alike, if at all, 2^10 times.
What overflows further below FP16's max than that has another reason, a division by zero for instance."""

GAP = 2.0**2
"""Where some elements of a gradient have overflowed, others lie within 2 binades below: sizes of a layer's elements
have no gap there. Infinities among much smaller numbers are single poles."""

POLES = re.compile(
    r"(?:Sqrt|Rsqrt|Pow|Div|Reciprocal|Log|Norm|LinalgVectorNorm|Acos|Asin|Acosh|Atanh|Atan2|Std|Var|Cdist|Prod|Erfinv"
    r"|Logit)[a-z\d]*Backward"
)
"""Functions whose own derivative is infinite, or 0/0, at a point: what they return says nothing about the scale."""

NEXT_BATCH = 2.0
"""The next batch's gradients may be twice as large (DESIGN §4)."""


@dataclass(frozen=True)
class FalseAlarm:
    """An exception of anomaly mode that the loss scale brought about.

    Attributes:
        failure: the exception.
        node: the function of the backward pass that returned NaN.
        scale: the loss scale in force.
        peak: the largest gradient before, multiplied by the scale.
        site: where it was.
        at_cast: it was still FP32, about to be cast to FP16, where it does not fit.
        estimated: it was reckoned from other steps.
    """

    failure: Failure
    node: str
    scale: float
    peak: float
    site: str
    at_cast: bool = False
    estimated: bool = False


def false_alarms(run: Run) -> list[FalseAlarm]:
    """Return the exceptions of anomaly mode that come from a scaled gradient beyond FP16's range, in order."""
    found = []
    for failure in matching(run, ANOMALY):
        if failure.row.anomaly_mode is False:
            continue  # code of the user's that raises with the words of another exception
        scale = _scale(run, failure)
        if failure.row.scaled in {"all", "some"} and scale is not None and scale > 1.0 and _finite(run, failure):
            alarm = _seen(run, failure, scale) or _expected(run, failure, scale)
            found += [alarm] if alarm else []
    return found


def _gradients(run: Run, failure: Failure) -> list[TensorRow]:
    """Return what was recorded of the gradients of the pass that raised, in order."""
    row = failure.row
    rows = [r for r in run.tensors("grad_output") if (r.step, r.micro_batch) == (row.step, row.micro_batch)]
    return [r for r in rows if r.seq > row.seq]


def _scale(run: Run, failure: Failure) -> float | None:
    """Return the loss scale of the pass: as recorded with its gradients, or as the scaler's last event has it."""
    by_gradient = next((r.loss_scale for r in _gradients(run, failure) if r.loss_scale), None)
    at = when(failure.row)
    events = [s.scale_after or s.scale for s in run.scaler if when(s) < at]
    return by_gradient or next((scale for scale in reversed(events) if scale), None)


def _finite(run: Run, failure: Failure) -> bool:
    """Whether the forward pass and the loss were finite, but for the -inf of a mask."""
    row = failure.row
    if row.loss is not None and not math.isfinite(row.loss):
        return False
    forward = (r for r in run.tensors("activation") if (r.step, r.micro_batch) == (row.step, row.micro_batch))
    return not any(r.nan or r.posinf for r in forward)


def _seen(run: Run, failure: Failure, scale: float) -> FalseAlarm | None:
    """Return how the scaled gradients of this very pass left FP16's range, where they did."""
    rows, node = _gradients(run, failure), _node(failure)
    largest, site = 0.0, ""
    for row in rows:
        if row.cast_to == FP16.dtype and not row.nonfinite and row.absmax > FP16.max:
            return FalseAlarm(failure, node, scale, row.absmax, row.module, at_cast=True)
        if row.dtype == FP16.dtype and not row.nonfinite and row.absmax > largest:
            largest, site = row.absmax, row.module
        if row.nonfinite:
            return FalseAlarm(failure, node, scale, largest, site) if _by_range(row, largest, node) else None
    if POLES.match(node):
        return None
    # The NaN came about behind the last gradient that was recorded.
    last = max((r.absmax for r in rows[-1:] if r.dtype == FP16.dtype), default=0.0)
    return FalseAlarm(failure, node, scale, last, rows[-1].module) if last >= FP16.max / NEXT_BATCH else None


def _by_range(row: TensorRow, largest: float, node: str) -> bool:
    """Whether `row`, the first gradient that is not finite, has overflowed; `largest` is that of FP16 before it."""
    if row.dtype != FP16.dtype or POLES.match(node):
        return False
    return largest >= FP16.max / ONE_OPERATION and (not row.absmax or row.absmax >= FP16.max / GAP)


def _expected(run: Run, failure: Failure, scale: float) -> FalseAlarm | None:
    """Judge a pass that was not recorded by the gradients of those that were, larger as the root of its loss is.

    That is how those of a squared loss grow.
    """
    known = gradient_range(run)
    if known is None or _gradients(run, failure):
        return None
    losses = [s.loss for s in run.steps if s.loss]
    usual = median(abs(loss) for loss in losses) if losses else 0.0
    larger = max(1.0, abs(failure.row.loss or 0.0) / usual) ** 0.5 if usual else 1.0
    peak = known.peak.value * scale * larger
    if peak < FP16.max / NEXT_BATCH or POLES.match(_node(failure)):
        return None
    return FalseAlarm(failure, _node(failure), scale, peak, known.peak.site, estimated=True)


def _node(failure: Failure) -> str:
    match = ANOMALY.search(failure.message)
    return match["node"] if match else ""
