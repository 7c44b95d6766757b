"""A diagnosis in one sentence."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.finding import Finding
    from ampdoctor.trace.run import Run

NOT_PRECISION = "AMP7"
"""Beginning of the codes of the rules whose faults FP32 shares, so that no format and no loss scale helps."""


def verdict_of(run: Run, roots: Sequence[Finding], crashed: Sequence[str] = ()) -> str:
    """Return what is to be said of `run`, given its root findings, worst first, and the rules that failed.

    A run is called healthy only where there was something to judge, every rule did its work and nothing is left
    unexplained.
    """
    faults = [f for f in roots if f.severity is not Severity.NOTE]
    failed = f"; could not be judged by {', '.join(crashed)}, which failed" if crashed else ""
    if faults:
        return _fault(faults) + failed
    return _without_fault(run, healthy=not crashed) + failed


def _fault(faults: Sequence[Finding]) -> str:
    first = faults[0]
    more = len(faults) - 1
    rest = f", and {more} more {'fault' if more == 1 else 'faults'}" if more else ""
    other = "Not a precision problem. " if first.code.startswith(NOT_PRECISION) else ""
    return f"{other}{first.summary.rstrip('.')} ({first.name}){rest}"


def _without_fault(run: Run, *, healthy: bool) -> str:
    ended = f"; the training ended with {run.info.exception}" if run.info.exception else ""
    if not run.steps:
        return "nothing to judge: no optimizer step was seen" + ended
    broken = _nonfinite_from(run)
    if broken is not None:
        return f"no cause found: the loss is NaN or infinite from step {broken} on, and no rule explains it" + ended
    if all(step.applied is False for step in run.steps):
        skipped = f"none of {counted(len(run.steps), 'step')} was applied, so nothing was learned"
        return f"no cause found: {skipped}, and no rule explains it" + ended
    examined = sum(step.examined for step in run.steps)
    if not examined:
        return f"nothing found in {counted(len(run.steps), 'step')}, of which none was examined" + ended
    extent = f"no precision fault found in {examined} of {counted(len(run.steps), 'step')} examined"
    if run.info.status == "degraded":
        return f"{extent}; the recorder gave up after step {run.steps[-1].step}, and saw nothing of the rest{ended}"
    return f"healthy: {extent}" if healthy and not ended else extent + ended


def _nonfinite_from(run: Run) -> int | None:
    """Return the step from which on every loss is NaN or infinite, up to the end."""
    losses = [(s.step, s.loss) for s in run.steps if s.loss is not None]
    broken = list(takewhile(lambda entry: not math.isfinite(entry[1]), reversed(losses)))
    return broken[-1][0] if broken else None
