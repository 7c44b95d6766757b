"""Places where every activation is zero and no gradient comes through, on every step up to the end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.zero_gradients import ENOUGH, all_zero, flows, nonzero_in_fp32

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.zero_gradients import Flow
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow

DROPOUT = ("Dropout", "AlphaDropout", "FeatureAlphaDropout")
"""Beginnings of the names of modules that make zeros because they were told to."""

Place = tuple[str, str, str, str]
"""Module and slot of the last tensor with values, module and slot of the one that is all zeros."""


@dataclass(frozen=True)
class DeadPlace:
    """One place where everything dies.

    Attributes:
        below: the last tensor that holds values, on the last step.
        zeros: what is made of it: zeros only.
        steps: the steps on which it was so, up to the end.
        last: what went through the model on the last of them.
        since: the examined step from which on it was so.
    """

    below: TensorRow
    zeros: TensorRow
    steps: tuple[int, ...]
    last: Flow

    @property
    def since(self) -> int:
        """The first examined step of those up to the end on which it was so."""
        return self.steps[0]

    @property
    def before(self) -> list[TensorRow]:
        """Gradients of parameters that are zero in every element: those below, which never learn."""
        seen = [r.module for r in self.last.activations if r.seq <= self.below.seq]
        return [r for r in self.last.starved if r.module in seen]


def dead_places(run: Run) -> list[DeadPlace]:
    """Return where every activation is zero and no gradient comes through, in the order of the forward pass."""
    alive, parameters = nonzero_in_fp32(run), {m.module for m in run.modules if m.parameters}
    dropout = {m.module for m in run.modules if m.type.startswith(DROPOUT)}
    streak: dict[Place, list[int]] = {}
    found: dict[Place, tuple[TensorRow, TensorRow]] = {}
    seen = flows(run)
    for flow in seen:
        found = {
            (q.module, q.slot, a.module, a.slot): (q, a)
            for q, a in pairwise(flow.activations)
            if _dies(flow, q, a)
            and not (a.slot.startswith("out") and a.module in parameters | dropout)
            and ("activation", a.module, a.slot) not in alive
        }
        streak = {place: [*streak.get(place, []), flow.step] for place in found}
    return [DeadPlace(*found[place], tuple(steps), seen[-1]) for place, steps in streak.items() if len(steps) >= ENOUGH]


def _dies(flow: Flow, q: TensorRow, a: TensorRow) -> bool:
    """Whether `a`, which comes right after `q`, is all zeros, and the gradient that stops there is not zero above."""
    if not (q.slot.startswith("out") and q.module != a.module and q.micro_batch == a.micro_batch):
        return False
    if all_zero(q) or q.nonfinite or not all_zero(a):
        return False
    arrived = flow.outputs.get((q.module, q.slot))
    # What an in-place module makes has no gradient of its own to see; what comes after it has.
    above = {r.module for r in flow.activations if r.seq >= a.seq and r.module != q.module}
    return arrived is not None and all_zero(arrived) and any(map(flow.arrives, above))
