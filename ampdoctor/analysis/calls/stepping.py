"""Each step of an optimizer, with every call since its gradients were last cleared or used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import calls_in_order, reach_of
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.trace.schema.calls import STEPS

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow

SCALED = ("all", "some")


@dataclass(frozen=True)
class Taken:
    """One step of an optimizer, through a scaler or not.

    Attributes:
        call: the call of `scaler.step` or `optimizer.step`.
        optimizer: name of the optimizer.
        scaler: name of the scaler that made the step; None where none did.
        scale: its scale; of a step without a scaler the loss scale in force, where there is one.
        skipped: the scaler skipped it; None where that is not known.
        calls: calls of any kind since its gradients were cleared or used in a step, in order.
        backwards: the backward passes among them that reach it.
        repeats: the step before it of the same optimizer, where nothing has come to its gradients since.
        known: of at least one of the passes it is recorded what they reach.
    """

    call: CallRow
    optimizer: str
    scaler: str | None
    scale: float | None
    skipped: bool | None
    calls: tuple[CallRow, ...]
    backwards: tuple[CallRow, ...]
    repeats: Taken | None = None

    @property
    def step(self) -> int:
        """Index of the step."""
        return self.call.step

    @property
    def known(self) -> bool:
        """Whether it was recorded, and not only concluded, that a pass reaches the optimizer."""
        return any(b.optimizers is not None for b in self.backwards)

    @property
    def scaled(self) -> tuple[CallRow, ...]:
        """The backward passes of scaled losses."""
        return tuple(b for b in self.backwards if b.scaled in SCALED)

    def concerns(self, call: CallRow) -> bool:
        """Whether `call` unscales this optimizer's gradients or moves its scaler's scale."""
        return (call.call == "unscale" and call.target == self.optimizer) or (
            call.call == "update" and self.scaler is not None and call.target == self.scaler
        )


@once_per_run
def taken_steps(run: Run) -> tuple[Taken, ...]:
    """Return every step of every optimizer, in order."""
    follower = _Follower(run)
    for call in calls_in_order(run):
        # One that failed has done nothing; but a step that was asked for is still a step.
        if call.error is None:
            follower.take(call)
    return tuple(follower.taken)


class _Follower:
    """Follows the calls; what it holds by optimizer is what has been called since its gradients were empty or used."""

    def __init__(self, run: Run) -> None:
        self.taken: list[Taken] = []
        self._reach = reach_of(run)
        self._events = {(r.step, r.optimizer): r for r in run.scaler if r.event in {"step", "skip"}}
        self._optimizers = self._reach.stepped
        self._calls: dict[str, list[CallRow]] = {name: [] for name in self._optimizers}
        self._cleared: set[str] = set()
        self._last: dict[str, Taken] = {}
        self._scales = {s.step: s.loss_scale for s in run.steps}

    def take(self, call: CallRow) -> None:
        kind = call.call
        stepped = None
        if kind in STEPS:
            stepped = call.target
            if stepped:
                self._step(call, stepped)
        elif kind == "zero_grad":
            self._clear(call.target)
        elif kind == "backward" and call.holding is not None:
            for name in set(self._optimizers) - set(call.holding):
                self._clear(name)  # by hand, as in `p.grad = None`
        for name, calls in self._calls.items():
            if name != stepped:
                calls.append(call)

    def _clear(self, name: str | None) -> None:
        if name in self._calls:
            self._calls[name].clear()
            self._cleared.add(name)

    def _step(self, call: CallRow, name: str) -> None:
        calls = tuple(self._calls[name])
        backwards = tuple(c for c in calls if c.call == "backward" and name in self._reach.of(c))
        event = self._events.get((call.step, name)) if call.call == "scaler_step" else None
        before = self._last.get(name)
        idle = not backwards and name not in self._cleared
        taken = Taken(
            call, name, event.scaler if event else None,
            event.scale if event else self._scales.get(call.step),
            event.event == "skip" if event else None, calls, backwards,
            replace(before, repeats=None) if idle and before is not None else None,
        )  # fmt: skip
        self.taken.append(taken)
        self._last[name] = taken
        self._calls[name].clear()
        self._cleared.discard(name)
