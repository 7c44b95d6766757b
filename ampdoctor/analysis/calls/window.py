"""What comes between the backward passes and the step of an optimizer, and does not belong there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import calls_named, reach_of, when
from ampdoctor.analysis.calls.stepping import Taken, taken_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


@dataclass(frozen=True)
class Mixed:
    """A step whose gradients were unscaled before a further scaled backward pass added to them.

    Attributes:
        taken: the step.
        unscale: the first such `unscale_`.
        passes: scaled backward passes of the step.
        unscales: calls of `unscale_` that were followed by another of these passes.
    """

    taken: Taken
    unscale: CallRow
    passes: int
    unscales: int


@dataclass(frozen=True)
class Crossed:
    """A step whose gradients waited while `update()` was called for the step of another optimizer.

    Attributes:
        taken: the step.
        update: the call that came too early.
        other: the optimizer that had stepped before it.
        unscaled: the gradients had been unscaled before it, and `scaler.step` does so again.
        moved: number by which it changed the scale; 1.0 where it did not.
    """

    taken: Taken
    update: CallRow
    other: str
    unscaled: bool
    moved: float


def mixed_steps(run: Run) -> Iterator[Mixed]:
    """Yield every step of the kind Mixed of which it was recorded what its passes reach."""
    for taken in taken_steps(run):
        passes = [b for b in taken.scaled if b.optimizers is not None]
        if len(passes) < 2:
            continue
        between = [
            c for c in taken.calls
            if c.call == "unscale" and c.target == taken.optimizer
            and when(passes[0]) < when(c) < when(passes[-1])
        ]  # fmt: skip
        if between:
            yield Mixed(taken, between[0], len(taken.scaled), len(between))


def crossed_steps(run: Run) -> Iterator[Crossed]:
    """Yield every step of the kind Crossed of which it was recorded what its passes reach."""
    if reach_of(run).only is not None:
        return
    scalers = {(r.step, r.optimizer): r.scaler for r in run.scaler if r.event in {"step", "skip"}}
    moves = _Moves(run)
    for taken in taken_steps(run):
        passes = [when(b) for b in taken.scaled if b.optimizers is not None]
        if taken.scaler is None or not passes:
            continue
        waiting = [c for c in taken.calls if when(c) > passes[0]]
        others = [
            c for c in waiting
            if c.call == "scaler_step" and scalers.get((c.step, c.target)) == taken.scaler
        ]  # fmt: skip
        updates = [c for c in waiting if c.call == "update" and c.target == taken.scaler]
        early = [u for u in updates if others and when(u) > when(others[0])]
        if early:
            before = [c for c in waiting if when(c) < when(early[0])]
            other = [c for c in others if c in before][-1].target or ""
            unscaled = any(c.call == "unscale" and c.target == taken.optimizer for c in before)
            yield Crossed(taken, early[0], other, unscaled, moves.by(early[0]))


class _Moves:
    """By what each `update` changed its scaler's scale."""

    def __init__(self, run: Run) -> None:
        updates: dict[tuple[str | None, int], list[CallRow]] = {}
        for call in calls_named(run, "update"):
            if call.error is None:
                updates.setdefault((call.target, call.step), []).append(call)
        rows = [
            (r.scaler, r.step, r.seq, r.scale_after / r.scale)
            for r in run.scaler
            if r.event in {"growth", "backoff", "set"} and r.scale and r.scale_after
        ]
        # The row of what an update did follows its call.
        self._by: dict[tuple[int, int], float] = {}
        for scaler, step, seq, factor in rows:
            before = [c for c in updates.get((scaler, step), ()) if c.seq < seq]
            if before:
                self._by[when(max(before, key=when))] = factor

    def by(self, call: CallRow) -> float:
        return self._by.get(when(call), 1.0)
