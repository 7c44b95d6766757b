"""Findings while a run is still being recorded. Nothing here prints: whoever watches says what to do with a finding."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.engine import diagnose
from ampdoctor.errors import AmpDoctorError
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ampdoctor.config import Config
    from ampdoctor.finding import Finding


class News:
    """Knows the findings that were told: each is news once, and again where it has become worse.

    A fault is the same as before if rule and source line are: its sites shift as the run goes on.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[str, str | None], int] = {}

    def is_news(self, finding: Finding) -> bool:
        """Whether `finding` has not been told yet; from now on it has."""
        key = (finding.code, finding.location.source)
        before = self._told.get(key)
        if before is not None and before <= finding.severity.rank:
            return False
        self._told[key] = finding.severity.rank
        return True


class Watcher:
    """Examines a run folder that is being written to, and tells each fault once.

    Args:
        folder: the run folder; it may still be empty or half written.
        config: settings of the diagnosis.
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self._folder = folder
        self._config = config
        self._seen: frozenset[tuple[str, int]] = frozenset()
        self._news = News()

    def poll(self) -> list[Finding]:
        """Return the root findings of severity warning or error that are new since the last call, or worse by now."""
        present = self._sizes()
        if not present or present == self._seen:
            return []
        try:
            faults = diagnose(open_run(self._folder), self._config).faults
        except AmpDoctorError:
            return []
        self._seen = present
        return [finding for finding in faults if self._news.is_news(finding)]

    def _sizes(self) -> frozenset[tuple[str, int]]:
        try:
            return frozenset((p.name, p.stat().st_size) for p in self._folder.glob("*.arrows"))
        except OSError:
            return frozenset()


@dataclass(frozen=True)
class Pace:
    """How often a run is polled.

    Attributes:
        interval_s: least time between two polls.
        rest: a poll is followed by a pause of at least this many times its own duration, so that watching costs no
            more than 1 / `rest` of one core however long the run gets.
    """

    interval_s: float
    rest: float


BESIDE_THE_TRAINING = Pace(interval_s=2.0, rest=20.0)
"""From another process: 5 % of one core."""

WITHIN_THE_TRAINING = Pace(interval_s=5.0, rest=50.0)
"""From the process that trains: 2 % of one core, which it holds the GIL for."""


class _Turn:
    """One of the things that are done again and again, each at the pace that its own cost allows."""

    def __init__(self, look: Callable[[], None], pace: Pace) -> None:
        self._look = look
        self._pace = pace
        self.due_s = time.perf_counter() + pace.interval_s

    def take(self) -> None:
        started_s = time.perf_counter()
        self._look()
        ended_s = time.perf_counter()
        self.due_s = ended_s + max(self._pace.interval_s, self._pace.rest * (ended_s - started_s))


class LiveFindings:
    """Polls a run folder from a thread of its own and passes every new finding on.

    Args:
        watcher: what to poll.
        tell: called with each finding, from that thread.
        pace: how often.
        look: called from that thread at the same pace, for what others do beside the training.
    """

    def __init__(
        self, watcher: Watcher, tell: Callable[[Finding], None], pace: Pace, look: Callable[[], None] | None = None
    ) -> None:
        self._watcher = watcher
        self._tell = tell
        self._turns = [_Turn(act, pace) for act in (look, self._poll) if act is not None]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="ampdoctor-live", daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def stop(self) -> None:
        """End polling; a poll under way is waited for, within reason."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=10.0)

    def _loop(self) -> None:
        while self._turns:
            turn = min(self._turns, key=lambda t: t.due_s)
            if self._stopped.wait(max(turn.due_s - time.perf_counter(), 0.0)):
                return
            try:
                turn.take()
            except Exception:  # noqa: BLE001 - looking on must not end the training
                self._turns.remove(turn)

    def _poll(self) -> None:
        for finding in self._watcher.poll():
            if not self._stopped.is_set():
                self._tell(finding)
