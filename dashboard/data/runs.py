"""What is known of each folder of a library at a glance."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.data.library import Kind

if TYPE_CHECKING:
    from ampdoctor.finding import Severity
    from ampdoctor.trace.info import RunInfo
    from ampdoctor_dashboard.data.judge import Judge, Judged
    from ampdoctor_dashboard.data.library import Entry, Library

AT_ONCE = 12
"""Runs whose diagnoses are asked for at a time; the others follow with the next looks."""


@dataclass(frozen=True)
class Glance:
    """One folder.

    Attributes:
        entry: what it is.
        live: the run goes on.
        stalled_min: minutes without news, where the run goes on and has stalled; else None.
        ranks: ranks that recorded; 0 where it is no run.
        judged: its diagnosis; None where there is none yet.
        problem: why there will be none.
    """

    entry: Entry
    live: bool = False
    stalled_min: int | None = None
    ranks: int = 0
    judged: Judged | None = None
    problem: str = ""

    @property
    def waiting(self) -> bool:
        """It is still to be judged."""
        return not self.problem and self.judged is None

    @property
    def duration_s(self) -> float | None:
        """Seconds from its start to its end, or until now; None where its end is not known."""
        return None if self.entry.info is None else _duration_s(self.entry.info, live=self.live)

    def count(self, severity: Severity) -> int:
        """Return how many root findings of a severity there are."""
        diagnosis = self.judged.diagnosis if self.judged else None
        return sum(f.severity is severity for f in diagnosis.findings) if diagnosis else 0


def glances(library: Library, judge: Judge) -> list[Glance]:
    """Return all folders of a library; diagnoses that are missing are asked for, a few at a time."""
    found: list[Glance] = []
    waiting = 0
    for entry in library.entries():
        glance = _glance(entry, library, judge if waiting < AT_ONCE else None)
        waiting += glance.waiting
        found.append(glance)
    return found


def _glance(entry: Entry, library: Library, judge: Judge | None) -> Glance:
    if entry.kind is not Kind.RUN:
        return Glance(entry, problem=entry.problem)
    try:
        seen = library.look_at(entry.id)
        judged = judge.ask(seen) if judge else None
        stalled = seen.stalled_for_s
    except AmpDoctorError as error:
        return Glance(entry, problem=error.message)
    problem = (judged.problem or "") if judged else ""
    minutes = None if stalled is None else int(stalled // 60)
    return Glance(entry, seen.is_live, minutes, len(seen.ranks), judged, problem)


def _duration_s(info: RunInfo, *, live: bool) -> float | None:
    if not info.started or (info.ended is None and not live):
        return None
    return max((info.ended or time.time()) - info.started, 0.0)
