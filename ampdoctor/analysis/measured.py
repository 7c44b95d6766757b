"""What twin steps measured of the whole gradient: what the run lost, and what each other setting would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.measurement import FP32, RUN, MeasuredStep, Measurement
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twin_numbers import cosine_text, flushed_share, wrong_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TwinRow, TwinStepRow

__all__ = [
    "FP32", "RUN", "MeasuredStep", "Measurement", "cosine_text", "declined", "earliest", "flushed_share", "latest",
    "measured_steps", "refuted_replays", "worst", "wrong_share",
]  # fmt: skip


@once_per_run
def measured_steps(run: Run) -> tuple[MeasuredStep, ...]:
    """Return the twin steps that measured the whole gradient in some setting, in order."""
    refuted = refuted_replays(run)
    by_step: dict[int, dict[str, list[TwinRow]]] = {}
    for row in run.twins:
        if row.step not in refuted:
            by_step.setdefault(row.step, {}).setdefault(row.counterfactual, []).append(row)
    found = []
    for step in sorted(by_step):
        settings = {name: _measurement(rows) for name, rows in by_step[step].items()}
        known = {name: m for name, m in settings.items() if m is not None}
        if known:
            found.append(MeasuredStep(step, known))
    return tuple(found)


def earliest(run: Run) -> MeasuredStep | None:
    """Return the first step on which the run's own gradient was measured and finite."""
    return next((s for s in measured_steps(run) if s.run is not None), None)


def latest(run: Run) -> MeasuredStep | None:
    """Return the last such step."""
    return next((s for s in reversed(measured_steps(run)) if s.run is not None), None)


def worst(run: Run) -> MeasuredStep | None:
    """Return the one of them on which most of the gradient's energy was wrong."""
    steps = [s for s in measured_steps(run) if s.run is not None]
    return max(steps, key=_wrong_of_run, default=None)


def declined(run: Run) -> tuple[TwinStepRow, ...]:
    """Return the second opinions that were not given, or not in full."""
    return tuple(row for row in run.twin_steps if row.declined is not None)


@once_per_run
def refuted_replays(run: Run) -> frozenset[int]:
    """Return the steps whose only second opinion is a replay that did not come out as the step had."""
    confirmed = {r.step for r in run.twin_steps if r.confirmed is not False and r.kind != "local"}
    return frozenset(r.step for r in run.twin_steps if r.confirmed is False) - confirmed


def _wrong_of_run(step: MeasuredStep) -> float:
    return (step.run.wrong if step.run else None) or 0.0


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
