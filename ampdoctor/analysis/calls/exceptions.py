"""The exceptions that a training met, caught or not, and what became of the training after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import calls_in_order, source_of, when
from ampdoctor.analysis.columns import recorded_dtypes
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence, Location, Severity
from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow

_LONGEST_QUOTE = 200
"""Characters of a message that a finding quotes."""


@dataclass(frozen=True)
class Failure:
    """One exception.

    Attributes:
        row: the call that raised it, or the place that it passed.
        kind: its class.
        message: what it says.
    """

    row: CallRow
    kind: str
    message: str

    @property
    def source(self) -> str | None:
        """`file:line` of the user's code that it came from."""
        if self.row.error_file and self.row.error_line is not None:
            return f"{self.row.error_file}:{self.row.error_line}"
        return source_of(self.row)

    @property
    def evidence(self) -> Evidence:
        """The exception in its own words."""
        quote = self.message.strip().partition("\n")[0][:_LONGEST_QUOTE].rstrip(" .")
        where = f"{self.source}{self._function}" if self.source else f"Step {self.row.step}"
        return Evidence("exception", quote, f"{where} raised {self.kind} on step {self.row.step}: {quote}.")

    @property
    def _function(self) -> str:
        """The function of that line, in brackets; "" where it has no name."""
        name = (self.row.error_function or "").replace(".<locals>", "")
        return f" (`{name}`)" if name and self.row.error_file and not name.endswith(">") else ""


@once_per_run
def failures(run: Run) -> tuple[Failure, ...]:
    """Return every exception that was recorded, in order."""
    found = []
    for row in calls_in_order(run):
        if row.error:
            kind, _, message = row.error.partition(": ")
            found.append(Failure(row, kind, message))
    return tuple(found)


def matching(run: Run, *patterns: re.Pattern[str]) -> list[Failure]:
    """Return the exceptions whose message matches one of `patterns`."""
    return [f for f in failures(run) if any(p.search(f.message) for p in patterns)]


def calls_before(run: Run, failure: Failure) -> list[CallRow]:
    """Return the calls that succeeded before `failure`, in order."""
    end = when(failure.row)
    return [c for c in calls_in_order(run) if when(c) < end and c.error is None]


@once_per_run
def half_about(run: Run) -> bool:
    """Whether half precision was in use anywhere: by autocast, in a tensor or in a weight."""
    autocast = {c.autocast for c in run.calls} | {c.last_autocast for c in run.calls}
    weights = {d for m in run.modules for d in m.dtypes}
    return bool(HALF_DTYPES & (autocast | weights | recorded_dtypes(run, "activation", "weight")))


def aftermath(run: Run, found: Sequence[Failure], *, mistake: bool = False) -> tuple[Severity, list[Evidence]]:
    """Return how much harm exceptions of one kind have done, and what tells it.

    Where no step was taken any more, they ended the training. Where it went on, batches were lost, unless the code
    was prepared for them: it has another way on every step, or met the exception once and never took that way again.

    Args:
        run: the run.
        found: the exceptions, in order.
        mistake: they come from calls that are wrong however the code deals with the exception.
    """
    first, last = found[0], found[-1]
    applied = [s.step for s in run.steps if s.applied is not False]
    after = sum(step >= first.row.step for step in applied)
    evidence = [first.evidence]
    if len(found) > 1:
        steps = len({f.row.step for f in found})
        text = f"It was raised at least {len(found)} times, on {counted(steps, 'step')}."
        evidence.append(Evidence("times_raised", len(found), text))
    if not after:
        ended = bool(run.info.exception and last.message[:_LONGEST_QUOTE] in run.info.exception)
        how = "the script ended with it" if ended else "the script caught it and never stepped again"
        text = f"No `optimizer.step()` came after it: {how}."
        return Severity.ERROR, [*evidence, Evidence("steps_after", 0, text)]
    text = f"The script caught it and went on: {counted(after, 'step')} came after it."
    evidence.append(Evidence("steps_after", after, text))
    raised = {f.row.step for f in found}
    reached = [s for s in applied if first.row.step <= s <= last.row.step]
    prepared = len(found) == 1 or (len(raised) > 2 and raised.issuperset(reached))
    return Severity.NOTE if prepared and not mistake else Severity.WARNING, evidence


def place_of(found: Sequence[Failure]) -> Location:
    """Return where and when `found` were raised."""
    first = found[0]
    sites = (f"{first.row.error_module} (forward)",) if first.row.error_module else ()
    return Location(sites, first.row.step, found[-1].row.step, source=first.source)


def by_place(found: Sequence[Failure]) -> list[list[Failure]]:
    """Group exceptions by the line that they came from."""
    groups: dict[str | None, list[Failure]] = {}
    for failure in found:
        groups.setdefault(failure.source, []).append(failure)
    return list(groups.values())
