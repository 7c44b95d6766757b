"""Where a training goes on from a checkpoint, and which scaler it goes on with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import calls_named, when
from ampdoctor.analysis.loss import EDGE_STEPS, loss_curve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, ScalerRow


@dataclass(frozen=True)
class Resumed:
    """An optimizer that got its state back, and goes on with a scaler that did not.

    Attributes:
        load: the call that restored the optimizer.
        scaler: the scaler of its next step, which is new.
        backoffs: updates with which that scaler begins, all of them backoffs, as it starts too high.
        before: the scale that was in force before, where this recording has seen it.
    """

    load: CallRow
    scaler: str
    backoffs: tuple[ScalerRow, ...]
    before: float | None


def resumed(run: Run) -> Iterator[Resumed]:
    """Yield every resume of the kind Resumed, in order."""
    loads = [c for c in calls_named(run, "load_state") if c.error is None]
    optimizers = {r.optimizer for r in run.scaler if r.optimizer}
    for load in loads:
        if load.target not in optimizers or not _trained(run, load):
            continue
        steps = [r for r in run.scaler if r.event in {"step", "skip"} and r.optimizer == load.target]
        first = next((r for r in steps if when(r) > when(load)), None)
        if first is None or any(c.target == first.scaler for c in loads):
            continue
        updates = [
            r for r in run.scaler
            if r.scaler == first.scaler and r.event in {"growth", "backoff", "hold", "set"}
        ]  # fmt: skip
        if any(when(r) < when(load) for r in updates):
            continue  # the scaler itself has lived on
        backoffs = tuple(takewhile(lambda r: r.event == "backoff", updates))
        earlier = [
            s for r in run.scaler
            if when(r) < when(load) and (s := r.scale_after or r.scale) is not None
        ]  # fmt: skip
        yield Resumed(load, first.scaler, backoffs, earlier[-1] if earlier else None)


def _trained(run: Run, load: CallRow) -> bool:
    """Whether what was loaded had been trained before: not so where a fold of a cross-validation starts afresh."""
    if load.entries != 0:
        return True
    groups = [o for o in run.optimizers if o.optimizer == load.target]
    if not groups or any(o.momentum or o.betas for o in groups):
        return False  # it would have kept something
    # SGD without momentum keeps nothing. Trained it was if the loss goes on below where it once started: every one of
    # the first losses after below every one of the first losses of all, so that no noise of batches decides.
    curve = loss_curve(run)
    losses = list(zip(curve.steps, curve.losses, strict=True))
    start = [loss for step, loss in losses if step < load.step][:EDGE_STEPS]
    now = [loss for step, loss in losses if step >= load.step][:EDGE_STEPS]
    return bool(start and now) and max(now) < min(start)
