"""What twin steps measured of the whole gradient: what the run lost, and what each other setting would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.measurement import FP32, RUN, MeasuredStep, Measurement
from ampdoctor.analysis.twins.opinions import twin_rows
from ampdoctor.analysis.twins.twin_numbers import cosine_text, flushed_share, wrong_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TwinRow

__all__ = [
    "FP32", "RUN", "MeasuredStep", "Measurement", "cosine_text", "flushed_share", "latest", "measured_steps",
    "wrong_share",
]  # fmt: skip


@once_per_run
def measured_steps(run: Run) -> tuple[MeasuredStep, ...]:
    """Return the twin steps that measured the whole gradient in some setting, in order."""
    by_step: dict[int, dict[str, list[TwinRow]]] = {}
    for row in twin_rows(run):
        by_step.setdefault(row.step, {}).setdefault(row.counterfactual, []).append(row)
    found = []
    for step in sorted(by_step):
        settings = {name: _measurement(rows) for name, rows in by_step[step].items()}
        known = {name: m for name, m in settings.items() if m is not None}
        if known:
            found.append(MeasuredStep(step, known))
    return tuple(found)


def latest(run: Run) -> MeasuredStep | None:
    """Return the last step on which the run's own gradient was measured and finite."""
    return next((s for s in reversed(measured_steps(run)) if s.run is not None), None)


def _measurement(rows: Iterable[TwinRow]) -> Measurement | None:
    """Return the measurement that `rows` of one setting make up; None without one of the whole gradient."""
    by_role: dict[str, list[TwinRow]] = {}
    for row in rows:
        by_role.setdefault(row.role, []).append(row)
    gradient = _totals(by_role.get("gradient", ()))
    if not gradient:
        return None
    losses = [r.value for r in _totals(by_role.get("loss", ())) if r.value is not None]
    return Measurement(
        gradient[-1],
        _totals(by_role.get("weight_grad", ())),
        tuple(by_role.get("grad_output", ())),
        sum(losses) if losses else None,
    )


def _totals(rows: Iterable[TwinRow]) -> tuple[TwinRow, ...]:
    """Return the rows of the step as a whole where there are any, else those of the micro-batches."""
    everything = tuple(rows)
    return tuple(r for r in everything if r.micro_batch is None) or everything
