"""Where in a step values are lost or stop being finite, operation by operation, as local twins saw it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.forward.forward_reach import harmed_steps
from ampdoctor.analysis.forward.operations import Origin, operations
from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow

CONSTANTS = ("fill", "full", "where", "triu", "tril", "scalar_tensor", "lift")
"""Parts of the names of operations that write a constant: an infinity that FP32 shows as well was written on purpose,
as the -inf of a mask is."""

MASK_CONSTANT = 1e9
"""What is as large as this and overflows where a constant is written or cast is a mask (-1e9, finfo(float32).min)."""


def first_lost(run: Run, step: int, direction: str | None = None, least_energy: float = 0.0) -> Origin | None:
    """Return the first operation of `step` that flushed, absorbed or rounded integers away; None where none did.

    Args:
        run: the run.
        step: the step.
        direction: forward or backward only.
        least_energy: share of its result's energy that must lie in what it flushed; above 0, flushing alone counts.
    """
    rows = [
        Origin(r, r.first_lost)
        for r in operations(run).get(step, ())
        if r.first_lost is not None and direction in {None, r.direction} and (r.energy_lost or 0.0) >= least_energy
    ]
    return min(rows, key=lambda o: o.order, default=None)


def first_born(run: Run, step: int) -> Origin | None:
    """Return the first operation of `step` that makes NaN or infinities of finite values; None where none does.

    The infinities of a mask are no birth.
    """
    return next(iter(births_of(run, step)), None)


def births_of(run: Run, step: int) -> list[Origin]:
    """Return the operations of `step` that make NaN or infinities of finite values, in order, without masks."""
    harmless = _harmless(run)
    rows = [
        Origin(r, r.first_born)
        for r in operations(run).get(step, ())
        if r.first_born is not None and r.born and not _mask(r) and not (_as_in_fp32(r) and _place(r) in harmless)
    ]
    return sorted(rows, key=lambda o: o.order)


@once_per_run
def _harmless(run: Run) -> frozenset[tuple[str, str, str | None, int | None]]:
    """Return where the forward pass makes infinities, in FP32 as well, on steps that come out finite all the same.

    They are meant: a mask that is computed, such as the logarithm of zeros and ones, looks like a fault by itself.
    """
    harmed = harmed_steps(run)
    sound = {s.step for s in run.steps if s.loss is not None and math.isfinite(s.loss) and s.step not in harmed}
    return frozenset(
        _place(row)
        for step in sound
        for row in operations(run).get(step, ())
        if row.born and row.direction == "forward" and _as_in_fp32(row)
    )


def _place(row: OpRow) -> tuple[str, str, str | None, int | None]:
    return row.op, row.module, row.file, row.line


def _as_in_fp32(row: OpRow) -> bool:
    return row.born_fp32 == row.born


def _mask(row: OpRow) -> bool:
    """Whether what is not finite was written as a constant, for FP32 as well or too large to be an activation."""
    return _writes_constant(row) if _as_in_fp32(row) else lost_mask(row)


def lost_mask(row: OpRow) -> bool:
    """Whether a mask's constant, finite in FP32, is written or cast to what can't hold it.

    What comes of it is the mask all the same, but for a row of which everything is masked.
    """
    lost = row.born > 0 and not _as_in_fp32(row) and row.absmax >= MASK_CONSTANT
    return lost and ("_to_copy" in row.op or _writes_constant(row))


def _writes_constant(row: OpRow) -> bool:
    return any(part in row.op for part in CONSTANTS)
