"""Where in a step values are lost or stop being finite, operation by operation, as local twins saw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import nonfinite_steps
from ampdoctor.analysis.measured import RUN, refuted_replays
from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow

CONSTANTS = ("fill", "full", "where", "triu", "tril", "scalar_tensor", "lift")
"""Parts of the names of operations that write a constant: an infinity that FP32 shows as well was written on purpose,
as the -inf of a mask is."""


@dataclass(frozen=True)
class Origin:
    """The operation that comes first.

    Attributes:
        row: what was measured of it.
        order: its place among the operations of the step.
    """

    row: OpRow
    order: int

    @property
    def source(self) -> str | None:
        """`file:line` of the user's code, where known."""
        known = self.row.file and self.row.line is not None
        return f"{self.row.file}:{self.row.line}" if known else None

    @property
    def phrase(self) -> str:
        """The operation and its place: "`aten.mm` at `encoder.ffn` (train.py:41), forward"."""
        where = f" at `{self.row.module}`" if self.row.module else " outside any module"
        # A path from the root would bury the line that matters.
        line = (
            self.row.file
            and f" ({self.row.file.replace(chr(92), '/').rpartition('/')[2]}:{self.row.line})"
        )
        return f"`{self.row.op}`{where}{line if self.source else ''}, {self.row.direction}"

    @property
    def finite_in_fp32(self) -> bool:
        """From the same inputs FP32 makes finite values of all that is not finite here."""
        return self.row.born_fp32 == 0


def first_lost(
    run: Run, step: int, direction: str | None = None, least_energy: float = 0.0
) -> Origin | None:
    """Return the first operation of `step` that flushed, absorbed or rounded integers away; None where none did.

    Args:
        run: the run.
        step: the step.
        direction: forward or backward only.
        least_energy: share of its result's energy that must lie in what it flushed; above 0, flushing alone counts.
    """
    rows = [
        Origin(r, r.first_lost)
        for r in _ops(run).get(step, ())
        if r.first_lost is not None
        and direction in {None, r.direction}
        and (r.energy_lost or 0.0) >= least_energy
    ]
    return min(rows, key=lambda o: o.order, default=None)


def first_born(run: Run, step: int) -> Origin | None:
    """Return the first operation of `step` that makes NaN or infinities of finite values; None where none does.

    A constant that is not finite in FP32 either is a mask and no birth.
    """
    rows = [
        Origin(r, r.first_born)
        for r in _ops(run).get(step, ())
        if r.first_born is not None and r.born and not _constant(r)
    ]
    return min(rows, key=lambda o: o.order, default=None)


def first_born_ever(run: Run) -> Origin | None:
    """Return the first birth of the first step that has one."""
    births = (first_born(run, step) for step in sorted(_ops(run)))
    return next((birth for birth in births if birth is not None), None)


def finite_in_fp32(run: Run, step: int) -> bool | None:
    """Whether `step`, not finite in the run, is finite in FP32; None where nobody looked or it can't be told.

    The FP32 twin carried through the step decides, for it shares no flushed epsilon and no overflow with the run. An
    operation by itself is asked next: its inputs are the run's own, so that its word against precision is weaker.
    """
    carried = _carried(run, step)
    if carried is not None:
        return carried
    birth = first_born(run, step)
    return None if birth is None else birth.finite_in_fp32


def _carried(run: Run, step: int) -> bool | None:
    rows = [
        r
        for r in run.twins
        if r.step == step and r.counterfactual == RUN and r.role in {"loss", "gradient"}
    ]
    if step in refuted_replays(run) or not any(r.nonfinite for r in rows):
        return None
    if not any(r.nonfinite_fp32 for r in rows):
        return True
    # Weights that were broken before make every format NaN, whatever had broken them.
    broken = min(nonfinite_steps(run, "weight"), default=None)
    return None if broken is not None and broken <= step else False


@once_per_run
def _ops(run: Run) -> dict[int, tuple[OpRow, ...]]:
    """Return the operations by step, without those of replays that did not come out as the step had."""
    refuted = {r.step for r in run.twin_steps if r.kind == "replay" and r.confirmed is False}
    by_step: dict[int, list[OpRow]] = {}
    for row in run.ops:
        if row.source != "replay" or row.step not in refuted:
            by_step.setdefault(row.step, []).append(row)
    return {step: tuple(rows) for step, rows in by_step.items()}


def _constant(row: OpRow) -> bool:
    return row.born_fp32 == row.born and any(part in row.op for part in CONSTANTS)
