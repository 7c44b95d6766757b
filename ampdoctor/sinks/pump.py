"""Passes what a run folder holds on to sinks, while the run goes on and at its end. Nothing here raises."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError
from ampdoctor.live import News
from ampdoctor.sinks.follow import Follower
from ampdoctor.sinks.metrics import Summaries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.sinks.base import Sink, StepMetrics

PATIENCE_S = 10.0
"""Time that a sink at work in another thread is given at the end; its tracker may have hung for good."""


class Pump:
    """Keeps sinks up to date with a run folder.

    A sink that raises gets nothing more, and the others go on: what a tracker has already, nobody can tell.

    Args:
        folder: the run folder.
        sinks: where to.
        failed: told what is missing from now on, and why.
    """

    def __init__(self, folder: Path, sinks: Sequence[Sink], failed: Callable[[str, Exception], None]) -> None:
        self._follower = Follower(folder)
        self._summaries = Summaries()
        self._news = News()
        self._sinks = list(sinks)
        self._failed = failed
        self._readable = True
        self._busy = threading.Lock()

    def look(self) -> None:
        """Pass on the steps that are new and complete."""
        with self._busy:
            self._steps(everything=False)

    def finding(self, finding: Finding) -> None:
        """Pass on a finding that has just been made."""
        with self._busy:
            self._finding(finding)
            self._each(lambda sink: sink.flush())

    def finish(self, diagnosis: Diagnosis | None) -> None:
        """Pass on what is left, and the diagnosis where there is one, and close the sinks; the run is over."""
        if not self._busy.acquire(timeout=PATIENCE_S):
            self._failed("the last metrics and findings did not reach your tracker", TimeoutError("it does not answer"))
            return
        try:
            self._steps(everything=True)
            if diagnosis is not None:
                for finding in diagnosis.faults:
                    self._finding(finding)
                self._each(lambda sink: sink.diagnosis(diagnosis))
            self._each(lambda sink: sink.close())
        finally:
            self._busy.release()

    def _steps(self, *, everything: bool) -> None:
        steps = self._new_steps(everything=everything)
        if steps:
            self._each(lambda sink: _pass_on(steps, sink))

    def _new_steps(self, *, everything: bool) -> list[StepMetrics]:
        found: list[StepMetrics] = []
        if not self._readable or not self._sinks:
            return found
        try:
            while (stretch := self._follower.new(everything=everything)) is not None:
                found += self._summaries.of(stretch)
        except AmpDoctorError as error:  # not there yet, most likely
            if everything:
                self._failed("no metrics for your tracker", error)
        except Exception as error:  # noqa: BLE001 - never into the training
            self._readable = False
            self._failed("no further metrics for your tracker", error)
        return found

    def _finding(self, finding: Finding) -> None:
        if self._news.is_news(finding):
            self._each(lambda sink: sink.finding(finding))

    def _each(self, tell: Callable[[Sink], None]) -> None:
        for sink in tuple(self._sinks):
            try:
                tell(sink)
            except Exception as error:  # noqa: BLE001 - never into the training
                self._sinks.remove(sink)
                self._failed(f"nothing more goes to {type(sink).__name__}", error)


def _pass_on(steps: Sequence[StepMetrics], sink: Sink) -> None:
    for metrics in steps:
        sink.metrics(metrics)
    sink.flush()
