"""The gradients that went through FP16, step by step, in the order of the backward pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.gradient_sites import GradientSite, measured
from ampdoctor.analysis.calls.scaling import hand_scales
from ampdoctor.analysis.columns import trains_in_fp16
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.formats import FP16
from ampdoctor.histogram import merge
from ampdoctor.trace.histograms import histogram_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import StepRow, TensorRow


@dataclass(frozen=True)
class GradientStep:
    """The FP16 gradients of one examined step, in the order of the backward pass.

    Attributes:
        row: the step.
        scale: loss scale that multiplies the gradients of outputs.
        sites: casts and gradients of outputs, from the loss down.
        weights: gradients of matrices and other parameters with two or more dimensions. A bias may have a gradient
            that cancels to nothing by the model's own doing (that of attention keys does), a matrix hardly.
        vectors: gradients of the others, which count only where they overflow.
    """

    row: StepRow
    scale: float
    sites: tuple[GradientSite, ...]
    weights: tuple[GradientSite, ...]
    vectors: tuple[GradientSite, ...] = ()

    @property
    def all_sites(self) -> tuple[GradientSite, ...]:
        """Sites and weights."""
        return self.sites + self.weights

    @property
    def finite(self) -> bool:
        """No gradient holds a NaN or an infinity, and the step was not skipped."""
        loss = self.row.loss
        return (
            not any(site.histogram.nonfinite for site in (*self.all_sites, *self.vectors))
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
    modules = {r.module for r in outputs}
    weights = [r for r in run.tensors("weight_grad") if _made_in_fp16(r, modules)]
    by_step: dict[int, list[TensorRow]] = {}
    for r in (*outputs, *weights):
        by_step.setdefault(r.step, []).append(r)
    return {step: rows for step, rows in by_step.items() if not all(_is_vector(r) for r in rows)}


def _is_vector(row: TensorRow) -> bool:
    return row.role == "weight_grad" and len(row.shape) < 2


def _made_in_fp16(row: TensorRow, modules: set[str]) -> bool:
    """Whether a weight gradient came out of an FP16 product: autocast keeps it in FP32, in steps of 2^-24."""
    if row.dtype == "float16":
        return True
    smallest = FP16.min_subnormal_exponent
    whole_steps = row.exp_lowest >= smallest or histogram_of(row).count_below(smallest) == 0
    return row.dtype == "float32" and row.module in modules and (whole_steps or row.nonfinite > 0)


def _gradient_step(row: StepRow, scale: float, rows: Iterable[TensorRow]) -> GradientStep:
    groups: dict[tuple[str, str, str], list[TensorRow]] = {}
    for r in sorted(rows, key=lambda r: (r.micro_batch, r.seq)):
        groups.setdefault((r.module, r.role, r.slot), []).append(r)
    sites: list[GradientSite] = []
    weights: list[GradientSite] = []
    vectors: list[GradientSite] = []
    for (_, role, _), group in groups.items():
        histogram = merge(histogram_of(r) for r in group)
        if _is_vector(group[0]):
            vectors.append(GradientSite(group[0], histogram, 0.0))
            continue
        site = measured(group[0], histogram, sites)
        (weights if role == "weight_grad" else sites).append(site)
    if _nothing_arrives(row, sites + weights):
        sites, weights = [_gone(s) for s in sites], [_gone(s) for s in weights]
    return GradientStep(row, scale, tuple(sites), tuple(weights), tuple(vectors))


def _nothing_arrives(row: StepRow, sites: list[GradientSite]) -> bool:
    """Whether a loss that is not zero sends back zeros only: they were flushed before the first module.

    One whose value nobody knows is taken not to be zero.
    """
    zeros = all(not s.histogram.nonzero and not s.histogram.nonfinite and not s.counted for s in sites)
    return zeros and (row.loss is None or (math.isfinite(row.loss) and row.loss != 0.0))


def _gone(site: GradientSite) -> GradientSite:
    return replace(site, lost=1.0)


def fp16_gradients_missing(run: Run) -> list[str]:
    """Return what is missing to judge the gradients of a run that trains in FP16; empty where nothing is."""
    return ["gradients of FP16 activations"] if trains_in_fp16(run) and not gradient_steps(run) else []
