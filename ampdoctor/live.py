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
        self._told: dict[tuple[str, str | None], int] = {}

    def poll(self) -> list[Finding]:
        """Return the root findings of severity warning or error that are new since the last call, or worse than then.

        A fault is the same as before if rule and source line are: its sites shift as the run goes on.
        """
        present = self._sizes()
        if not present or present == self._seen:
            return []
        try:
            faults = diagnose(open_run(self._folder), self._config).faults
        except AmpDoctorError:
            return []
        self._seen = present
        return [finding for finding in faults if self._is_news(finding)]

    def _is_news(self, finding: Finding) -> bool:
        key = (finding.code, finding.location.source)
        before = self._told.get(key)
        if before is not None and before <= finding.severity.rank:
            return False
        self._told[key] = finding.severity.rank
        return True

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


class LiveFindings:
    """Polls a run folder from a thread of its own and passes every new finding on.

    Args:
        watcher: what to poll.
        tell: called with each finding, from that thread.
        pace: how often.
    """

    def __init__(self, watcher: Watcher, tell: Callable[[Finding], None], pace: Pace) -> None:
        self._watcher = watcher
        self._tell = tell
        self._pace = pace
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
        pause_s = self._pace.interval_s
        while not self._stopped.wait(pause_s):
            started_s = time.perf_counter()
            try:
                for finding in self._watcher.poll():
                    if not self._stopped.is_set():
                        self._tell(finding)
            except Exception:  # noqa: BLE001 - looking on must not end the training
                return
            pause_s = max(self._pace.interval_s, self._pace.rest * (time.perf_counter() - started_s))
