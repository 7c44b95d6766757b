"""From which to which size the gradients of a run go, as far as was seen, and the loss scale that fits them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, isfinite, log2
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.analysis.backward.backward_stages import backward_pass
from ampdoctor.analysis.backward.gradients import gradient_steps
from ampdoctor.analysis.backward.scale_range import LOW_ENERGY, Peak, scale_range
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.opinions import op_rows, twin_rows
from ampdoctor.formats import FP16

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.backward.backward_stages import BackwardPass, Stage, WeightGradient
    from ampdoctor.analysis.backward.scale_range import ScaleRange
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow, TwinRow

STEPS_SEEN = 16
"""Examined steps looked at, the latest: with the default schedule that is all of them up to step 500."""


@dataclass(frozen=True)
class GradientRange:
    """The sizes of the gradients that pass through half, the loss scale divided out.

    Attributes:
        peak: the largest.
        binades: powers of two from there to the smallest that matters; None where nothing is left to tell.
    """

    peak: Peak
    binades: int | None

    @property
    def held(self) -> bool:
        """FP16 spans as many powers of two as they do."""
        return self.binades is None or self.binades <= FP16.binades


@once_per_run
def gradient_range(run: Run) -> GradientRange | None:
    """Return the range of the gradients of `run`; None where no nonzero one was seen."""
    peaks = [*_recorded(run), *_twins(run), *_operations(run), *_overflowed_twins(run)]
    peak = max(peaks, key=lambda p: p.value, default=None)
    if peak is None:
        return None
    lows = [low for row in twin_rows(run) if (low := _lowest(row)) is not None]
    if lows:
        return GradientRange(peak, floor(log2(peak.value)) - min(lows) + 1)
    steps = gradient_steps(run)
    return GradientRange(peak, scale_range(steps).binades if steps else None)


def as_twins_know(run: Run, scales: ScaleRange) -> ScaleRange:
    """Return `scales` with what FP32 twins know: how large the gradients are of which the run has nothing left."""
    known = gradient_range(run)
    if known is None or not any(_of_gradients(row) for row in twin_rows(run)):
        return scales
    suggested = scales.suggested
    if suggested is not None:
        suggested = min(suggested, known.peak.largest_scale)
    return replace(scales, peak=known.peak, gone=0, suggested=suggested)


def _of_gradients(row: TwinRow) -> bool:
    return row.counterfactual == "fp32" and row.role in {"grad_output", "weight_grad"}


def _recorded(run: Run) -> Iterator[Peak]:
    """Yield the largest values of what passes through half; what overflowed was twice what FP16 holds, at least."""
    for step in gradient_steps(run)[-STEPS_SEEN:]:
        backward = backward_pass(run, step.row.step, step.scale)
        parts: list[Stage | WeightGradient] = [*backward.stages, *backward.weights]
        for part in parts:
            largest = 2.0 * FP16.max if part.held.nonfinite else part.values.absmax
            if part.narrow and largest:
                yield Peak(largest / step.scale, part.row.module or part.row.slot)


def _twins(run: Run) -> Iterator[Peak]:
    """Yield the largest gradients of FP32 twins, which no overflow has hidden, where half would hold them."""
    last = _last_pass(run)
    weights = last.weights if last else ()
    left_out = {(w.row.module, w.row.slot) for w in weights if not w.narrow or (last and last.divided)}
    for row in twin_rows(run):
        if _of_gradients(row) and row.absmax and (row.module, row.slot) not in left_out:
            yield Peak(row.absmax, row.module or row.slot)


def _overflowed_twins(run: Run) -> Iterator[Peak]:
    """Yield what a scale at which a twin's gradients overflow says: the largest is twice what FP16 holds, at least."""
    last = _last_pass(run)
    finite = {
        (r.step, r.counterfactual)
        for r in twin_rows(run)
        if r.role == "loss" and r.value is not None and isfinite(r.value)
    }
    for row in twin_rows(run):
        scaled = row.number_format == FP16.name and row.loss_scale and not row.fp32_modules
        over = row.role == "gradient" and row.overflowed and not row.nonfinite_fp32
        known = (row.step, row.counterfactual) in finite and not (last and last.divided)
        if scaled and over and known:
            yield Peak(2.0 * FP16.max / (row.loss_scale or 1.0), "")


def _last_pass(run: Run) -> BackwardPass | None:
    steps = gradient_steps(run)[-1:]
    return backward_pass(run, steps[0].row.step, steps[0].scale) if steps else None


def _operations(run: Run) -> Iterator[Peak]:
    """Yield the largest results in half of operations of the backward pass, also inside modules."""
    for row in op_rows(run):
        if _backward_in_half(row) and row.absmax and isfinite(row.absmax):
            yield Peak(row.absmax / (row.loss_scale or 1.0), row.module or row.op)


def _backward_in_half(row: OpRow) -> bool:
    return row.direction == "backward" and "float16" in row.dtype_out.split(",")


def _lowest(row: TwinRow) -> int | None:
    """Return the lowest exponent that matters in a weight gradient of the FP32 twin: below it lies little energy."""
    # The gradient of a vector may cancel to nothing by the model's own doing, that of a matrix hardly.
    matrix = row.role == "weight_grad" and row.counterfactual == "fp32" and len(row.shape) > 1
    if not matrix or row.exp_counts is None or not any(row.exp_counts):
        return None
    counts = np.asarray(row.exp_counts, dtype=np.float64)
    energy = np.cumsum(counts * np.exp2(2.0 * (np.arange(counts.size) - counts.size)))
    place = np.searchsorted(energy, LOW_ENERGY * energy[-1], side="right")
    return (row.exp_lowest or 0) + int(place)
