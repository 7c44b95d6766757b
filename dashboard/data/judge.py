"""Diagnoses, made beside the pages: a run that grows is judged again and again, and nobody waits for it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.engine import diagnose
from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.data.signature import Signature, signature_of

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.config import Config
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor_dashboard.data.seen import SeenRun

REST = 10.0
"""A run that grows is judged anew after this many times what its last diagnosis took."""

KEPT = 500
"""Diagnoses that are kept."""


_Key = tuple["Path", int]
"""A run folder, and whose recording of it."""


@dataclass(frozen=True)
class Judged:
    """What is known of a run's diagnosis.

    Attributes:
        diagnosis: the last one; None where there is none.
        problem: why there is none, in one sentence; None where there is one.
        last_step: the last step that was there when it was made.
        current: nothing was recorded since.
    """

    diagnosis: Diagnosis | None
    problem: str | None
    last_step: int | None
    current: bool


@dataclass
class _Made:
    signature: Signature
    judged: Judged
    due: float


class Judge:
    """Makes and keeps the diagnoses of a library's runs.

    Args:
        config: settings of the diagnosis.
    """

    def __init__(self, config: Config | None = None) -> None:
        self._config = config
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ampdoctor-judge")
        self._made: dict[_Key, _Made] = {}
        self._asked: dict[_Key, Future[None]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, opened: SeenRun, wait_s: float = 0.0) -> Judged | None:
        """Return the last diagnosis of a run, and have it made where there is none or it is out of date.

        Args:
            opened: the run.
            wait_s: how long to wait for the first one.

        Returns:
            None where it is still being made.
        """
        key, now = (opened.folder, opened.rank), signature_of(opened.folder)
        with self._lock:
            made = self._made.get(key)
            out_of_date = made is None or (made.signature != now and time.monotonic() >= made.due)
            if out_of_date and key not in self._asked and not self._closed:
                self._asked[key] = self._worker.submit(self._judge, opened, now)
            asked = self._asked.get(key)
        if made is None and asked is not None and wait_s:
            try:
                asked.result(wait_s)
            except (Late, CancelledError):
                return None
            made = self._made.get(key)
        if made is None:
            return None
        judged = made.judged
        return judged if made.signature == now else Judged(judged.diagnosis, judged.problem, judged.last_step, False)

    def close(self) -> None:
        """Give up the diagnoses that were asked for and not begun; none can be asked for any more."""
        with self._lock:
            self._closed = True
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _judge(self, opened: SeenRun, signature: Signature) -> None:
        key, started = (opened.folder, opened.rank), time.monotonic()
        try:
            run = opened.judged()
            last = run.steps[-1].step if run.steps else None
            judged = Judged(diagnose(run, self._config), None, last, True)
        except AmpDoctorError as error:
            judged = Judged(None, error.message, None, True)
        except Exception as error:  # noqa: BLE001 - shown on the page; the others are still to be judged
            judged = Judged(None, f"{type(error).__name__}: {error}", None, True)
        ended = time.monotonic()
        with self._lock:
            self._made.pop(key, None)
            self._made[key] = _Made(signature, judged, ended + REST * (ended - started))
            while len(self._made) > KEPT:
                self._made.pop(next(iter(self._made)))
            self._asked.pop(key, None)
