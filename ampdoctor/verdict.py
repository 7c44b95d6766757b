"""A diagnosis in one sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.ranks import other_endings
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.finding import Finding
    from ampdoctor.trace.run import Run

NOT_PRECISION = "AMP7"
"""Beginning of the codes of the rules whose faults FP32 shares, so that no format and no loss scale helps."""


def verdict_of(
    run: Run, roots: Sequence[Finding], crashed: Sequence[str] = (), accepted: Sequence[Finding] = ()
) -> str:
    """Return what is to be said of `run` in one sentence.

    A run is called healthy only where it is over, there was something to judge, every rule did its work, nothing is
    left unexplained and nothing was found that the user merely accepts.

    Args:
        run: the run.
        roots: its root findings, worst first.
        crashed: the rules that failed.
        accepted: the findings that the user has taken out of the roots.
    """
    faults = _without_notes(roots)
    failed = f"; could not be judged by {', '.join(crashed)}, which failed" if crashed else ""
    if faults:
        return _fault(faults) + failed
    return _without_fault(run, len(_without_notes(accepted)), healthy=not crashed) + failed


def _without_notes(findings: Sequence[Finding]) -> list[Finding]:
    return [f for f in findings if f.severity is not Severity.NOTE]


def _fault(faults: Sequence[Finding]) -> str:
    first = faults[0]
    more = len(faults) - 1
    rest = f", and {more} more {'fault' if more == 1 else 'faults'}" if more else ""
    other = "Not a precision problem. " if first.code.startswith(NOT_PRECISION) else ""
    return f"{other}{first.summary.rstrip('.')} ({first.name}){rest}"


def _without_fault(run: Run, accepted: int, *, healthy: bool) -> str:
    end = _end(run)
    so_far = " so far" if run.unfinished else ""
    beyond = f"nothing found{so_far} beyond {counted(accepted, 'accepted finding')}" if accepted else ""
    if not run.steps:
        return f"{beyond or 'nothing to judge' + so_far}: no optimizer step was completed{end}"
    unexplained = _unexplained(run)
    if unexplained:
        return (
            f"{beyond}: {unexplained}" if beyond else f"no cause found: {unexplained}, and no rule explains it"
        ) + end
    steps, examined = counted(len(run.steps), "step"), sum(step.examined for step in run.steps)
    if not examined:
        return f"{beyond or 'nothing found' + so_far} in {steps}, of which none was examined{end}"
    found = "nothing found so far" if run.unfinished else "no precision fault found"
    extent = f"{beyond or found} in {examined} of {steps} examined{end}"
    return f"healthy: {extent}" if healthy and not end and not accepted else extent


def _unexplained(run: Run) -> str:
    """Return what is wrong with the run as a whole, whatever the rules say; empty where nothing is."""
    broken = _nonfinite_from(run)
    if broken is not None:
        return f"the loss is NaN or infinite from step {broken} on"
    if all(step.applied is False for step in run.steps):
        return f"none of {counted(len(run.steps), 'step')} was applied, so nothing was learned"
    return ""


def _end(run: Run) -> str:
    """Return how the recording ended, where that was not as it should be, as the end of a sentence."""
    end = ""
    if run.unfinished:
        end = "; no end of the run was recorded" if run.elsewhere else "; the run goes on"
    if run.info.status == "degraded" and run.steps:
        end = f"; the recorder gave up after step {run.steps[-1].step}, and saw nothing of the rest"
    return end + (f"; the training ended with {run.info.exception}" if run.info.exception else "") + _others_end(run)


def _others_end(run: Run) -> str:
    """Return how ranks ended whose exception is not the one that the run is said to have ended with."""
    told = [
        f"; {'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))} ended with {error}"
        for error, ranks in other_endings(run).items()
    ]
    return "".join(told)


def _nonfinite_from(run: Run) -> int | None:
    """Return the step from which on every loss is NaN or infinite, up to the end."""
    first = None
    for step in reversed(run.steps):
        if step.loss is not None and math.isfinite(step.loss):
            break
        first = first if step.loss is None else step.step
    return first
