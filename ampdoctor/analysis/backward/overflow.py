"""Backward passes that overflowed although the forward pass had not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.gradients import GradientStep, gradient_steps
from ampdoctor.analysis.forward.passes import forward_steps
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.formats import FP16

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.gradient_sites import GradientSite
    from ampdoctor.trace.run import Run


@dataclass(frozen=True)
class BackwardOverflow:
    """A step on which loss, activations and weights were finite, and a gradient was not.

    Attributes:
        step: its gradients.
        first: the first gradient of the backward pass that did not fit.
        largest_activation: largest finite value in its forward pass.
    """

    step: GradientStep
    first: GradientSite
    largest_activation: float


@once_per_run
def backward_overflows(run: Run) -> tuple[BackwardOverflow, ...]:
    """Return the examined steps whose backward pass alone overflowed, in order."""
    forward = {f.row.step: f for f in forward_steps(run)}
    found = []
    for step in gradient_steps(run):
        passed = forward.get(step.row.step)
        loss = step.row.loss
        if passed is None or passed.birth or not passed.weights_finite:
            continue
        backward = (*step.sites, *reversed(step.weights), *reversed(step.vectors))
        first = next((s for s in backward if overflowed(s)), None)
        if first is not None and (loss is None or math.isfinite(loss)):
            largest = max((r.absmax for r in passed.activations), default=0.0)
            found.append(BackwardOverflow(step, first, largest))
    return tuple(found)


def overflowed(site: GradientSite) -> bool:
    """Whether a gradient holds a nonfinite value, or values that its cast to FP16 makes infinite."""
    return site.histogram.nonfinite > 0 or (site.counted and site.histogram.absmax >= FP16.overflow_at)
