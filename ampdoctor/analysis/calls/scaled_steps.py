"""The steps of optimizers through an enabled scaler, and the calls that made their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import reach_of
from ampdoctor.analysis.calls.stepping import Taken, taken_steps
from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


@dataclass(frozen=True)
class ScaledStep:
    """One step of an optimizer through an enabled scaler, and the calls that made its gradients.

    Attributes:
        step: index of the step.
        optimizer: name of the optimizer.
        scale: the scaler's scale, by which the gradients are divided.
        backwards: backward passes that reach the optimizer, since its gradients were last cleared or used.
        clips: calls that clipped its gradients while they were still multiplied by the scale.
    """

    step: int
    optimizer: str
    scale: float
    backwards: tuple[CallRow, ...]
    clips: tuple[CallRow, ...]


@once_per_run
def scaled_steps(run: Run) -> tuple[ScaledStep, ...]:
    """Return every optimizer step that went through an enabled scaler, in order."""
    only = reach_of(run).only
    return tuple(
        ScaledStep(taken.step, taken.optimizer, taken.scale, taken.backwards, tuple(_scaled_clips(taken, only)))
        for taken in taken_steps(run)
        if taken.scaler is not None and taken.scale is not None
    )


def _scaled_clips(taken: Taken, only: str | None) -> list[CallRow]:
    """Return the clips of scaled gradients; whose they are may be unknown, and then they are left unjudged."""
    found = []
    for call in taken.calls:
        if call.call == "unscale" and call.target == taken.optimizer:
            break
        if call.call in {"clip_norm", "clip_value"} and (call.target or only) == taken.optimizer:
            found.append(call)
    return found
