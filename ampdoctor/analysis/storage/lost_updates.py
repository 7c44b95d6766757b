"""Updates that round away in half-precision weights, step by step: what lost-updates and its cause are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import floor, log2
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.optimizers import optimizer_groups
from ampdoctor.analysis.wording import number, percent
from ampdoctor.finding import Evidence
from ampdoctor.formats import HALF_DTYPES, format_of_dtype, title_of_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow

ROUND_TO_NEAREST = frozenset(
    {
        "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "RAdam",
        "RMSprop", "Rprop", "SGD",
    }
)  # fmt: skip
"""Optimizers of torch.optim: none of them rounds stochastically or keeps what rounding takes. The trace has the package
of any other class in front of its name."""

ENERGY_WARNING = 0.2
ENERGY_WARNING_SOURCE = "a fifth of what a typical tensor's update holds: as if on a learning rate 10 % lower"
ENERGY_ERROR = 0.5
ENERGY_ERROR_SOURCE = "half of what a typical tensor's update holds (BF16 runs that plateau lose 80 to 90 %)"
STEPS_SHARE = 0.5
STEPS_SHARE_SOURCE = "on most of the steps examined"
SMALL_MOVED = 0.001
SMALL_MOVED_SOURCE = "plain rounding moves none of them; stochastic rounding |u| / ulp, 0.1 % or more"


@dataclass(frozen=True)
class LostStep:
    """What one step meant to change in half-precision weights, and what of it was lost; `energy` is a tensor's."""

    step: int
    rows: tuple[TensorRow, ...]
    expected: int
    unchanged: int
    energy: float
    small: int
    small_moved: int

    @property
    def share(self) -> float:
        """Share of the elements meant to change that kept their value."""
        return self.unchanged / self.expected


@once_per_run
def lost_steps(run: Run) -> tuple[LostStep, ...]:
    """Return the applied steps on which an optimizer meant to change half-precision weights."""
    applied = {s.step for s in run.steps if s.applied is not False}
    rows: dict[int, list[TensorRow]] = {}
    for r in run.tensors("update", dtypes=HALF_DTYPES):
        if r.expected_to_move and r.step in applied:
            rows.setdefault(r.step, []).append(r)
    return tuple(_step(step, tuple(group)) for step, group in rows.items())


def keeps_what_rounding_takes(steps: Sequence[LostStep], share: float) -> bool:
    """Whether small updates do move some weights: stochastic rounding, or a Kahan sum."""
    small = sum(s.small for s in steps)
    return bool(small) and sum(s.small_moved for s in steps) >= share * small


def told_from_keeping(run: Run) -> bool:
    """Whether the optimizer is known to round to nearest: by the counts, or because it is one of torch's own."""
    steps = lost_steps(run)
    if any(s.small for s in steps):
        return True
    modules = {r.module for s in steps for r in s.rows}
    kinds = {g.type for module in modules for g in optimizer_groups(run, module)}
    return bool(kinds) and kinds <= ROUND_TO_NEAREST


def energy_text(step: LostStep) -> str:
    """Return how much of their own update the tensors lost."""
    worst = max(step.rows, key=lambda r: r.energy_unchanged or 0.0)
    if len(step.rows) == 1:
        return f"They held {percent(step.energy)} of the update of `{worst.site}` (sum of squares)."
    return (
        f"Half of the weights are in tensors that lost {percent(step.energy)} or more of their own update (sum of "
        f"squares); the worst of {len(step.rows)} is `{worst.site}` with {percent(worst.energy_unchanged or 0.0)}."
    )


def spacing(run: Run, step: LostStep) -> list[Evidence]:
    """Return the smallest change that a typical weight takes, as evidence."""
    dtype = step.rows[0].dtype
    number_format = format_of_dtype(dtype)
    weights = [r for r in run.tensors("weight", dtypes=(dtype,)) if r.step == step.step and r.rms]
    if number_format is None or not weights:
        return []
    typical = max(weights, key=lambda r: r.numel).rms
    half_place = 2.0 ** floor(log2(typical)) * number_format.eps / 2.0
    lr = next((o.lr for o in run.optimizers if o.lr), None)
    rate = f", and the learning rate is {lr:g}" if lr else ""
    least = f"in {title_of_dtype(dtype)} it takes no change below {number(half_place)}"
    text = f"A typical weight is {number(typical)}: {least}{rate}."
    return [Evidence("half_last_place", half_place, text)]


def _step(step: int, rows: tuple[TensorRow, ...]) -> LostStep:
    return LostStep(
        step,
        rows,
        sum(r.expected_to_move or 0 for r in rows),
        sum(r.unchanged or 0 for r in rows),
        _typical_energy(rows),
        sum(r.small_updates or 0 for r in rows),
        sum(r.small_updates_moved or 0 for r in rows),
    )


def _typical_energy(rows: Sequence[TensorRow]) -> float:
    """Return the share of its update that the typical weight's tensor lost: the median, each tensor by its elements.

    A share of all updates together cannot be had from shares by tensor: with SGD one tensor may hold most of it.
    """
    ranked = sorted(rows, key=lambda r: r.energy_unchanged or 0.0)
    counts = list(accumulate(r.expected_to_move or 0 for r in ranked))
    middle = next(i for i, count in enumerate(counts) if 2 * count >= counts[-1])
    return ranked[middle].energy_unchanged or 0.0
