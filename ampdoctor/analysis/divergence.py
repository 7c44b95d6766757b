"""Whether a run ran away before it broke: its loss grew by orders of magnitude, or an update dwarfed the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.broken_losses import broken_losses
from ampdoctor.analysis.columns import nonfinite_steps
from ampdoctor.analysis.loss import loss_curve
from ampdoctor.analysis.twins.measured import FP32, measured_steps

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

UNDER_WAY = 10.0
"""A loss this many times its start is on its way up: batches differ by less."""


@dataclass(frozen=True)
class Divergence:
    """A run that ran away.

    Attributes:
        began: the first step that shows it.
        broke: the first step after that which was not finite, or was skipped.
        start: the first loss; None where not known.
        peak: the largest finite loss before it broke, or that of FP32 where it broke at once; None where not known.
        in_fp32: the step on which a twin in FP32 had that loss; None where it is the run's own.
        update: the largest update of all weights together, as a multiple of their norm; None where not known.
    """

    began: int
    broke: int
    start: float | None
    peak: float | None
    in_fp32: int | None = None
    update: float | None = None


def divergence(run: Run, growth: float, update: float) -> Divergence | None:
    """Return how `run` ran away; None where it did not, or where it came back.

    Args:
        run: the run.
        growth: how many times its start the loss must have reached.
        update: how many times the norm of the weights a single update must be, where the loss does not show it.
    """
    broke = _broke(run)
    if broke is None:
        return None
    curve = loss_curve(run)
    start = curve.losses[0] if curve.losses else None
    moved, when = _largest_update(run, broke)
    if start is not None and start > 0.0:
        before = [(s, x) for s, x in zip(curve.steps, curve.losses, strict=True) if s < broke]
        if curve.growth_before(broke) >= growth:
            began = next(s for s, x in reversed(before) if x <= UNDER_WAY * start) + 1
            return Divergence(min(began, broke), broke, start, max(x for _, x in before), None, moved)
        step, twin = _loss_in_fp32(run, broke)
        if step is not None and twin is not None and twin >= growth * start:
            return Divergence(broke, broke, start, twin, step, moved)
    if moved is not None and when is not None and moved >= update:
        return Divergence(when, broke, start, None, None, moved)
    return None


def _broke(run: Run) -> int | None:
    """Return the first of the steps, up to the end, that were not finite; None where the run ended well."""
    first = None
    for step in reversed(run.steps):
        finite = step.loss is None or math.isfinite(step.loss)
        if finite and not step.found_inf:
            break
        first = step.step
    return first if first is not None else broken_losses(run).from_then_on


def _loss_in_fp32(run: Run, broke: int) -> tuple[int | None, float | None]:
    """Return the first finite loss of a twin in FP32 since the run broke, and its step."""
    for step in measured_steps(run):
        twin = step.settings.get(FP32)
        if step.step >= broke and twin is not None and twin.loss is not None and math.isfinite(twin.loss):
            return step.step, twin.loss
    return None, None


def _largest_update(run: Run, broke: int) -> tuple[float | None, int | None]:
    """Return the largest update up to `broke`, over the norm of the weights that it changed, and its step."""
    weights: dict[tuple[int, str], float] = {}
    for row in run.tensors("weight"):
        weights[row.step, row.site] = row.rms**2 * row.numel
    broken = set(nonfinite_steps(run, "weight"))
    moved: dict[int, list[tuple[float, float]]] = {}
    for row in run.tensors("update"):
        held = weights.get((row.step, row.site))
        if held is not None and row.step <= broke and row.step not in broken:
            moved.setdefault(row.step, []).append((row.rms**2 * row.numel, held))
    ratios = [
        (math.sqrt(sum(u for u, _ in pairs) / held), step)
        for step, pairs in moved.items()
        if (held := sum(w for _, w in pairs)) > 0.0
    ]
    return max(ratios, default=(None, None))
