"""A recorded step to ask about: its gradients, its loss scale and what twins measured of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.backward_stages import BackwardPass, backward_pass
from ampdoctor.analysis.calls.scaling import hand_scales
from ampdoctor.analysis.twins.opinions import twin_rows
from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow, TwinRow


@dataclass(frozen=True)
class Recorded:
    """A step to ask about: its gradients, its loss scale and what twins measured of it.

    Attributes:
        step: the step.
        scale: the run's loss scale on it.
        backward: its gradients.
        twins: its twins' rows, micro-batches together.
    """

    step: int
    scale: float
    backward: BackwardPass
    twins: tuple[TwinRow, ...]


def recorded_step(run: Run, step: int | None = None) -> Recorded:
    """Return what was recorded of `step`; without one, of the last with weight gradients, if possible with a twin.

    Raises:
        AmpDoctorError: there is no such step, or it was not examined.
    """
    rows = run.tensors("weight_grad")
    examined = sorted({r.step for r in rows})
    if not examined:
        raise AmpDoctorError("no gradients were recorded in this run", hint="record a few steps of its training")
    if step is None:
        proven = {r.step for r in twin_rows(run) if r.role == "weight_grad"}
        step = max((s for s in examined if s in proven), default=examined[-1])
    elif step not in examined:
        shown = ", ".join(map(str, examined[:20])) + (", ..." if len(examined) > 20 else "")
        raise AmpDoctorError(f"step {step} has no recorded gradients", hint=f"examined steps: {shown}")
    scale = _scale_of(run, [r for r in rows if r.step == step], step)
    twins = tuple(r for r in twin_rows(run) if r.step == step and r.micro_batch is None)
    return Recorded(step, scale, backward_pass(run, step, scale), twins)


def _scale_of(run: Run, rows: list[TensorRow], step: int) -> float:
    known = [r.loss_scale for r in rows if r.loss_scale]
    return known[0] if known else hand_scales(run).get(step, 1.0)
