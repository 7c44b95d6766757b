"""What happened to an optimizer's gradients between the scaler's last `update()` and the call that it refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.error_messages import STEPPED_ALREADY, UNSCALED_AFTER_STEP, UNSCALED_ALREADY
from ampdoctor.analysis.calls.exceptions import Failure, calls_before, matching
from ampdoctor.analysis.calls.order import when
from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


class Misuse(str, Enum):
    """Why the scaler refused a call."""

    NO_UPDATE = "no update after a step"
    NO_UPDATE_AFTER_DROPPING = "no update after gradients were dropped"
    STEPPED_TWICE = "stepped twice with the same gradients"
    EACH_MICRO_BATCH = "unscaled on each micro-batch"
    UNSCALED_TWICE = "unscaled twice for the same gradients"
    UNSCALED_AFTER_STEP = "unscaled after the step"


@dataclass(frozen=True)
class Refusal:
    """A call that a scaler refused because of what came before it.

    Attributes:
        failure: the exception.
        misuse: why.
        earlier: the call that stands against it: the step or unscaling since the last update.
        window: the calls since that update.
    """

    failure: Failure
    misuse: Misuse
    earlier: CallRow | None
    window: tuple[CallRow, ...]

    @property
    def backwards_between(self) -> int:
        """Backward passes between the earlier call and the refused one."""
        return len(_since(self.window, self.earlier, "backward"))


@once_per_run
def refusals(run: Run) -> tuple[Refusal, ...]:
    """Return the calls of `step` and `unscale_` that a scaler refused, in order."""
    found = matching(run, STEPPED_ALREADY, UNSCALED_AFTER_STEP, UNSCALED_ALREADY)
    return tuple(_refusal(failure, window_before(run, failure)) for failure in found)


def window_before(run: Run, failure: Failure) -> tuple[CallRow, ...]:
    """Return the calls that succeeded between the last `update()` and `failure`."""
    before = calls_before(run, failure)
    last = max((i for i, call in enumerate(before) if call.call == "update"), default=-1)
    return tuple(before[last + 1 :])


def of_optimizer(calls: Sequence[CallRow], optimizer: str | None, *kinds: str) -> list[CallRow]:
    """Return the calls of `kinds` for `optimizer`, or for whatever where it is not known."""
    return [c for c in calls if c.call in kinds and (optimizer is None or c.target in {optimizer, None})]


def _refusal(failure: Failure, window: tuple[CallRow, ...]) -> Refusal:
    optimizer = failure.row.target
    kind = "unscale" if UNSCALED_ALREADY.search(failure.message) else "scaler_step"
    earlier = next(reversed(of_optimizer(window, optimizer, kind)), None)
    again = bool(_since(window, earlier, "backward"))
    if STEPPED_ALREADY.search(failure.message):
        misuse = Misuse.NO_UPDATE if again else Misuse.STEPPED_TWICE
    elif UNSCALED_AFTER_STEP.search(failure.message):
        misuse = Misuse.NO_UPDATE if again else Misuse.UNSCALED_AFTER_STEP
    elif not again:
        misuse = Misuse.UNSCALED_TWICE
    else:
        misuse = _by_end_of_gradients(window, earlier, optimizer)
    return Refusal(failure, misuse, earlier, window)


def _by_end_of_gradients(window: Sequence[CallRow], earlier: CallRow | None, optimizer: str | None) -> Misuse:
    """Tell an accumulation, whose gradients live on, from gradients that were used or dropped without an update."""
    after = _since(window, earlier, "optimizer_step", "zero_grad")
    ends = of_optimizer(after, optimizer, "optimizer_step", "zero_grad")
    if any(c.call == "optimizer_step" for c in ends):
        return Misuse.NO_UPDATE
    return Misuse.NO_UPDATE_AFTER_DROPPING if ends else Misuse.EACH_MICRO_BATCH


def _since(window: Sequence[CallRow], earlier: CallRow | None, *kinds: str) -> list[CallRow]:
    start = when(earlier) if earlier is not None else (-1, -1)
    return [c for c in window if c.call in kinds and when(c) > start]
