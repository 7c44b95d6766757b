"""NaN and infinities that no operation of the model made: they came in with the data, or lay in the weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import nonfinite_steps
from ampdoctor.analysis.forward.passes import forward_steps
from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.analysis.forward.passes import ForwardStep
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow

HALF_DATA = "float16"
"""Data that the training casts to FP16 before it feeds it may have become infinite by that."""


@once_per_run
def bad_inputs(run: Run) -> tuple[tuple[ForwardStep, TensorRow], ...]:
    """Return the examined steps on which the first value that is not finite was handed to the model from outside."""
    found = []
    for step in forward_steps(run):
        birth = step.birth
        if birth is not None and step.weights_finite and _is_data(step, birth):
            found.append((step, birth))
    return tuple(found)


def _is_data(step: ForwardStep, birth: TensorRow) -> bool:
    """Whether `birth` reached the model before any module had made anything that could have gone into it."""
    if not birth.slot.startswith("in"):
        return False
    if birth.dtype == HALF_DATA and (not birth.nan or birth.posinf or birth.neginf):
        return False
    made = (r for r in step.activations if r.slot.startswith("out"))
    return all(r.micro_batch != birth.micro_batch for r in made)


@once_per_run
def bad_weights(run: Run) -> tuple[TensorRow, ...]:
    """Return the weights that are not finite on the very first step, which nothing has trained or cast to FP16."""
    first = run.steps[0].step if run.steps else math.inf
    if first not in nonfinite_steps(run, "weight"):
        return ()
    return tuple(
        r for r in run.tensors("weight") if r.step == first and r.nonfinite and (r.nan or r.dtype != "float16")
    )
