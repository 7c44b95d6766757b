"""Second moments of an optimizer that are held in half: can they decay, do they, and what would FP32 hold?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.formats import HALF_DTYPES, format_of_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OptimizerRow, TensorRow

_IS_A_SQUARE = 0.98
"""Cosine to g² of what is (1 - beta2) g² but for rounding: BF16 turns a vector by less than 1 degree, and a tenth of it
flushed by less than 10."""

_SECOND_MOMENTS = frozenset({"exp_avg_sq", "square_avg"})
"""What torch's optimizers call it, for state that was there before the recording began."""


@dataclass(frozen=True)
class SecondMoment:
    """One parameter's second moment in half.

    Attributes:
        rows: what was recorded of it on applied steps, in order.
        beta2: the share of it that a step keeps.
        since: the row from which on it should have come down most.
        held: on the steps after that, the share of its elements that the step left as they were.
        excess: how many times what it would have come down to in FP32 it holds at the end (estimated).
    """

    rows: tuple[TensorRow, ...]
    beta2: float
    since: TensorRow
    held: float
    excess: float

    @property
    def can_decay(self) -> bool:
        """Whether every value v has another one to be rounded to at beta2 * v: the next one down is within reach.

        Half a last place is eps/2 of v just above a power of two, and eps/4 just below one. From eps/2 on every value
        comes down, below eps/4 none does. In between a value comes down to where it sticks, short of the next power of
        two: whether that is harm is seen by what was `held` and by the `excess`.
        """
        number_format = format_of_dtype(self.rows[0].dtype)
        return number_format is None or 1.0 - self.beta2 >= number_format.eps / 2.0


@once_per_run
def second_moments(run: Run) -> tuple[SecondMoment, ...]:
    """Return the second moments that are held in half and were seen on three steps or more."""
    applied = {s.step for s in run.steps if s.applied is not False}
    by_site: dict[tuple[str, str], list[TensorRow]] = {}
    for row in run.tensors("optimizer_state", dtypes=HALF_DTYPES):
        known = row.square_ratio is not None and row.expected_to_move is not None
        if row.step in applied and known and not row.nonfinite:
            by_site.setdefault((row.module, row.slot), []).append(row)
    found = (_moment(rows, run.optimizers) for rows in by_site.values() if len(rows) > 2)
    return tuple(moment for moment in found if moment is not None)


def _moment(rows: Sequence[TensorRow], groups: Iterable[OptimizerRow]) -> SecondMoment | None:
    beta2 = _beta2(rows, groups)
    if beta2 is None:
        return None
    excess, start = _excess(rows, beta2)
    later = rows[start + 1 :]
    moving = sum(r.expected_to_move or 0 for r in later)
    held = sum(r.unchanged or 0 for r in later) / moving if moving else 0.0
    return SecondMoment(tuple(rows), beta2, rows[start], held, excess)


def _beta2(rows: Sequence[TensorRow], groups: Iterable[OptimizerRow]) -> float | None:
    """Return beta2; None where this is no second moment."""
    first = rows[0]
    ratio = first.square_ratio or 0.0
    # The first step leaves (1 - beta2) g² there.
    if first.step == 0 and ratio > 1.0:
        return 1.0 - 1.0 / ratio if _is_a_square(first) else None
    if not _is_called_one(first):
        return None
    return next((g.betas[1] for g in groups if g.betas and len(g.betas) > 1), None)


def is_second_moment(first: TensorRow) -> bool:
    """Whether a state is a second moment, by its first row: by its name in torch, or as g² but for a factor."""
    return _is_called_one(first) or (first.step == 0 and _is_a_square(first))


def _is_a_square(row: TensorRow) -> bool:
    return (row.square_cosine or 0.0) >= _IS_A_SQUARE


def _is_called_one(row: TensorRow) -> bool:
    return row.slot.rpartition(".")[2] in _SECOND_MOMENTS


def _excess(rows: Sequence[TensorRow], beta2: float) -> tuple[float, int]:
    """Return what it holds at the end over what FP32 would have brought it down to, and the row to start from for that.

    Between two examined steps g² is taken to have been as large as on the larger of them. But where the state has not
    changed in between, no g² came that would have raised it by half a last place.
    """
    number_format = format_of_dtype(rows[0].dtype)
    half_place = number_format.eps / 2.0 if number_format else 0.0
    end, worst = rows[-1].rms, (1.0, len(rows) - 1)
    kept, added = 1.0, 0.0  # of what a row holds, and by the squares after it, until the end
    for start in range(len(rows) - 2, -1, -1):
        before, row = rows[start], rows[start + 1]
        squares = max((r.square_ratio or 0.0) * r.rms for r in (before, row))
        if row.rms == before.rms and row.step > before.step + 1:
            squares = min(squares, row.rms * (1.0 + half_place / (1.0 - beta2)))
        share = beta2 ** (row.step - before.step)
        added += (1.0 - share) * squares * kept
        kept *= share
        exact = before.rms * kept + added
        if exact > 0.0:
            worst = max(worst, (end / exact, start))
    return worst
