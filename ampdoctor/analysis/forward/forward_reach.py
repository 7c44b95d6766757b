"""How large the values of a forward pass were, and whom it harmed that they were."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import nonfinite_steps
from ampdoctor.analysis.forward.passes import forward_steps
from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow


@once_per_run
def harmed_steps(run: Run) -> dict[int, str]:
    """Return the steps on which the loss or a gradient was not finite, and which of the two, as text."""
    harmed: dict[int, str] = {}
    for index in nonfinite_steps(run, "grad_output", "weight_grad"):
        harmed[index] = "gradients are not finite"
    for step in run.steps:
        if step.loss is not None and not math.isfinite(step.loss):
            harmed[step.step] = f"the loss is {step.loss:g}"
        elif step.found_inf:
            harmed.setdefault(step.step, "the scaler skipped the step")
    return harmed


def peak_before(run: Run, row: TensorRow) -> float:
    """Return the largest finite value that the site of `row` had on any step up to its own."""
    return max(
        (
            r.absmax
            for step in forward_steps(run)
            if step.row.step <= row.step
            for r in (*step.activations, *([step.birth] if step.birth else []))
            if (r.module, r.slot) == (row.module, row.slot)
        ),
        default=0.0,
    )


def weight_reach(run: Run, row: TensorRow) -> float:
    """Return how many times its inputs a weight matrix of the module of `row` may make its outputs; 0 where unknown."""
    reach = (
        r.absmax * math.prod(r.shape[1:]) for r in run.tensors("weight") if r.module == row.module and len(r.shape) > 1
    )
    return max(reach, default=0.0)
