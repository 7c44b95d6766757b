"""The gradients that went through FP16, step by step and site by site, with what FP16 took of each.

A gradient is flushed in stages: at the cast of an FP32 gradient to FP16, in each operation of the backward pass, and
in the product that makes a weight gradient. Before a cast the values are known, so its loss is counted; elsewhere it
is estimated from what was left standing. Where nothing was left, the stage before tells flushed from structural zeros:
a gradient that had come close to the edge of FP16 was flushed, one far above it was zero by the model's own doing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import trains_in_fp16
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.scaling import hand_scales
from ampdoctor.formats import FP16
from ampdoctor.histogram import ExponentHistogram, merge
from ampdoctor.trace.run import histogram_of
from ampdoctor.underflow import estimate_flushed, flushed_by_cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import StepRow, TensorRow

ATTENUATION_BINADES = 8
"""How much smaller than its input one stage of a backward pass may make a gradient, and no more be expected to."""

PRESSED = FP16.min_subnormal * 2.0**ATTENUATION_BINADES
"""A gradient whose largest element is below this may be zero one stage further down for lack of range alone."""


NEGLIGIBLE = 1e-3
"""A loss of energy that turns a gradient by less than 2 degrees is not worth a fit."""


@dataclass(frozen=True)
class GradientSite:
    """One gradient on one step, micro-batches merged.

    Attributes:
        row: its first row.
        histogram: of all its elements; of the FP32 values for a gradient about to be cast.
        lost: share of its energy (sum of squares) that FP16 flushed at this stage; 1 where all of it went.
        counted: the values before FP16 were seen, so that nothing is estimated.
    """

    row: TensorRow
    histogram: ExponentHistogram
    lost: float
    counted: bool = False

    @property
    def flushed(self) -> float:
        """Share of its nonzero elements that FP16 flushed at this stage."""
        if self.counted:
            return flushed_by_cast(self.histogram, FP16).share
        estimate = estimate_flushed(self.histogram, FP16)
        return self.lost if estimate is None else estimate.share

    @property
    def name(self) -> str:
        """What the report calls the place: the module, or the parameter that no module holds."""
        return self.row.module or (self.row.slot if self.row.role == "weight_grad" else "the loss")


@dataclass(frozen=True)
class GradientStep:
    """The FP16 gradients of one examined step, in the order of the backward pass.

    Attributes:
        row: the step.
        scale: loss scale that multiplies the gradients of outputs.
        sites: casts and gradients of outputs, from the loss down.
        weights: gradients of matrices and other parameters with two or more dimensions. A bias may have a gradient
            that cancels to nothing by the model's own doing (that of attention keys does), a matrix hardly.
    """

    row: StepRow
    scale: float
    sites: tuple[GradientSite, ...]
    weights: tuple[GradientSite, ...]

    @property
    def all_sites(self) -> tuple[GradientSite, ...]:
        """Sites and weights."""
        return self.sites + self.weights

    @property
    def finite(self) -> bool:
        """No gradient holds a NaN or an infinity, and the step was not skipped."""
        loss = self.row.loss
        return (
            not any(site.histogram.nonfinite for site in self.all_sites)
            and not self.row.found_inf
            and (loss is None or math.isfinite(loss))
        )


@once_per_run
def gradient_steps(run: Run) -> tuple[GradientStep, ...]:
    """Return the examined steps on which gradients went through FP16."""
    by_step = _rows_by_step(run)
    hand = hand_scales(run)
    found = []
    for row in run.steps:
        rows = by_step.get(row.step, [])
        if rows:
            scales = [r.loss_scale for r in rows if r.loss_scale is not None]
            scale = scales[0] if scales else hand.get(row.step, 1.0)
            found.append(_gradient_step(row, scale, rows))
    return tuple(found)


def _rows_by_step(run: Run) -> dict[int, list[TensorRow]]:
    outputs = [
        r
        for r in run.tensors("grad_output")
        if r.dtype == "float16" or (r.slot.startswith("cast") and r.cast_to == "float16")
    ]
    if not outputs:
        half_weights = run.tensors("weight_grad", dtypes=("float16",))
        outputs = half_weights
    by_step: dict[int, list[TensorRow]] = {}
    modules = {r.module for r in outputs}
    for r in outputs:
        by_step.setdefault(r.step, []).append(r)
    for r in run.tensors("weight_grad"):
        if r.step in by_step and len(r.shape) > 1 and _made_in_fp16(r, modules):
            by_step[r.step].append(r)
    return by_step


def _made_in_fp16(row: TensorRow, modules: set[str]) -> bool:
    """Whether a weight gradient came out of an FP16 product: autocast keeps it in FP32, in steps of 2^-24."""
    if row.dtype == "float16":
        return True
    whole_steps = not row.exp_counts or row.exp_lowest >= FP16.min_subnormal_exponent
    return row.dtype == "float32" and row.module in modules and (whole_steps or row.nonfinite > 0)


def _gradient_step(row: StepRow, scale: float, rows: Iterable[TensorRow]) -> GradientStep:
    groups: dict[tuple[str, str, str], list[TensorRow]] = {}
    for r in sorted(rows, key=lambda r: (r.micro_batch, r.seq)):
        groups.setdefault((r.module, r.role, r.slot), []).append(r)
    sites: list[GradientSite] = []
    weights: list[GradientSite] = []
    for (_, role, _), group in groups.items():
        site = _measured(group[0], merge(histogram_of(r) for r in group), sites)
        (weights if role == "weight_grad" else sites).append(site)
    if _nothing_arrives(row, sites + weights):
        sites, weights = [_gone(s) for s in sites], [_gone(s) for s in weights]
    return GradientStep(row, scale, tuple(sites), tuple(weights))


def _nothing_arrives(row: StepRow, sites: list[GradientSite]) -> bool:
    """Whether a loss that is not zero sends back zeros only: they were flushed before the first module."""
    zeros = all(
        not s.histogram.nonzero and not s.histogram.nonfinite and not s.counted for s in sites
    )
    return zeros and row.loss is not None and math.isfinite(row.loss) and row.loss != 0.0


def _gone(site: GradientSite) -> GradientSite:
    return replace(site, lost=1.0)


def _measured(
    row: TensorRow, histogram: ExponentHistogram, before: list[GradientSite]
) -> GradientSite:
    if row.slot.startswith("cast"):
        return GradientSite(
            row, histogram, flushed_by_cast(histogram, FP16).energy_share, counted=True
        )
    if not histogram.nonzero:
        return GradientSite(row, histogram, 1.0 if _flushed_whole(row, before) else 0.0)
    # Each zero was at most half the smallest subnormal, which bounds the loss without looking at the distribution.
    bound = histogram.zeros * 4.0**FP16.flush_exponent
    if bound <= NEGLIGIBLE * histogram.sum_squares:
        return GradientSite(row, histogram, 0.0)
    estimate = estimate_flushed(histogram, FP16)
    return GradientSite(row, histogram, estimate.energy_share if estimate is not None else 0.0)


def _flushed_whole(row: TensorRow, before: list[GradientSite]) -> bool:
    """Whether a gradient of nothing but zeros was flushed; `before` are the stages above it, nearest last."""
    own = [s for s in before if s.row.module == row.module] if row.role == "weight_grad" else []
    for site in reversed(own or before):
        if site.histogram.nonzero:
            return site.histogram.absmax < PRESSED
    return bool(own) and any(s.lost == 1.0 for s in own)


def fp16_gradients_missing(run: Run) -> list[str]:
    """Return what is missing to judge the gradients of a run that trains in FP16; empty where nothing is."""
    return (
        ["gradients of FP16 activations"] if trains_in_fp16(run) and not gradient_steps(run) else []
    )
