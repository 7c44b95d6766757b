"""What local twins measured of a step: which operation loses what, and where NaN and infinities are born."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.twins.opinions import op_rows
from ampdoctor_dashboard.data.step_run import run_of_step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampdoctor.trace.schema import OpRow
    from ampdoctor_dashboard.data.opened import OpenedRun

LONGEST_CHAIN = 7
"""Operations of a lineage."""

BEFORE_THE_STEP = -1
"""In `inputs_from`: a parameter, data, a constant."""


@dataclass(frozen=True)
class Metric:
    """One way of losing values.

    Attributes:
        name: column of the table `ops`.
        share: values are shares, from 0 to 1; else elements.
        of: what an operation comes to; None where that was not measured.
    """

    name: str
    share: bool
    of: Callable[[OpRow], float | None]


def _of_nonzero(count: int, row: OpRow) -> float:
    return count / row.nonzero if row.nonzero else 0.0


METRICS = {
    metric.name: metric
    for metric in (
        Metric("born", False, lambda row: row.born),
        Metric("overflowed", False, lambda row: row.overflowed),
        Metric("flushed", True, lambda row: _of_nonzero(row.flushed, row)),
        Metric("energy_lost", True, lambda row: row.energy_lost),
        Metric("absorbed", True, lambda row: None if row.absorbed is None else row.absorbed / max(row.numel, 1)),
        Metric("cancelled", True, lambda row: None if row.cancelled is None else row.cancelled / max(row.numel, 1)),
        Metric("integers_lost", False, lambda row: row.integers_lost),
        Metric("relative_error", True, lambda row: row.relative_error),
    )
}
"""What the bars can show; the first that is not zero anywhere is shown unasked."""


def rows_of(opened: OpenedRun, step: int | None) -> list[OpRow]:
    """Return the operations of a step, in order; none where no local twin looked at it.

    Where the step was replayed as well, the live one is shown: both number their operations for themselves.
    """
    rows = [row for row in op_rows(run_of_step(opened, None)) if row.step == step]
    live = [row for row in rows if row.source == "live"]
    return sorted(live or rows, key=lambda row: row.seq)


def steps_of(opened: OpenedRun) -> list[int]:
    """Return the steps that local twins have looked at."""
    return sorted({row.step for row in op_rows(run_of_step(opened, None))})


def default_step(opened: OpenedRun) -> int | None:
    """Return the last step on which an operation gave what is not finite, or else the last one looked at."""
    rows = op_rows(run_of_step(opened, None))
    broken = max((row.step for row in rows if row.born), default=None)
    return broken if broken is not None else max((row.step for row in rows), default=None)


def metric_for(rows: Sequence[OpRow], wanted: str) -> Metric:
    """Return the metric called `wanted`, or the first by which something is lost."""
    if wanted in METRICS:
        return METRICS[wanted]
    lossy = (metric for metric in METRICS.values() if any((metric.of(row) or 0.0) > 0.0 for row in rows))
    return next(lossy, METRICS["flushed"])


def worst(rows: Sequence[OpRow], metric: Metric, most: int) -> list[tuple[OpRow, float]]:
    """Return the operations that lose most, and how much; those that lose nothing are left out."""
    found = [(row, value) for row in rows if (value := metric.of(row)) is not None and value > 0.0]
    return sorted(found, key=lambda pair: -pair[1])[:most]


def first_born(rows: Sequence[OpRow]) -> OpRow | None:
    """Return the operation that was the first to give what is not finite, of inputs that were."""
    return min((row for row in rows if row.born), key=lambda row: _order(row.first_born, row), default=None)


def first_lost(rows: Sequence[OpRow]) -> OpRow | None:
    """Return the operation that was the first to flush, absorb, or round a whole number away."""
    return min((r for r in rows if r.first_lost is not None), key=lambda r: _order(r.first_lost, r), default=None)


def _order(place: int | None, row: OpRow) -> int:
    return row.seq if place is None else place


def lineage(rows: Sequence[OpRow], row: OpRow) -> list[OpRow]:
    """Return where the inputs of an operation came from: of each one's inputs the largest, back to the step's start."""
    by_seq = {other.seq: other for other in rows}
    chain, seen = [row], {row.seq}
    while len(chain) < LONGEST_CHAIN:
        sources = [by_seq[s] for s in chain[-1].inputs_from or () if s in by_seq and s not in seen]
        if not sources:
            break
        chain.append(max(sources, key=lambda source: source.absmax))
        seen.add(chain[-1].seq)
    return chain


def why_none(opened: OpenedRun) -> str | None:
    """Return why the last local twin said nothing; None where none was asked for."""
    declined = [row.declined for row in run_of_step(opened, None).twin_steps if row.declined]
    return declined[-1] if declined else None
