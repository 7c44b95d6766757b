"""Fail open: an error of ours disables us, never the training."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ampdoctor.record.quiet import OwnMode, Quiet
from ampdoctor.record.training_thread import TrainingThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class _Stay:
    """Where one thread is."""

    __slots__ = ("depth", "entered", "quiet")

    def __init__(self) -> None:
        self.depth = 0
        self.entered = 0.0
        self.quiet = Quiet()


class _Stays(threading.local):
    """Where each thread is: autograd has a thread per device, and data parallelism one per replica."""

    def __init__(self) -> None:
        self.here = _Stay()


class Guard:
    """A context in which every Exception is ours: it is handed to `on_error` and swallowed.

    It also keeps the time spent inside, so that the recorder knows what it costs, and sets the user's modes aside.

    Args:
        on_error: told once; it detaches the recorder.
        strict: raise instead, for tests.

    Attributes:
        thread: the thread whose training is followed.
    """

    def __init__(self, on_error: Callable[[Exception], None], *, strict: bool = False) -> None:
        self._on_error = on_error
        self.strict = strict
        self.thread = TrainingThread()
        self._stays = _Stays()
        self._spent = 0.0
        self._beneath: OwnMode | None = None

    def take_seconds(self) -> float:
        """Return the seconds spent inside since the last call, the present stay up to now included."""
        stay = self._stays.here
        if stay.depth:
            now = time.perf_counter()
            self._spent += now - stay.entered
            stay.entered = now
        spent, self._spent = self._spent, 0.0
        return spent

    def set_beneath(self, mode: OwnMode | None) -> None:
        """Lay a mode of ours beneath the user's modes of this thread, in force outside the guard; None for none."""
        # An error may switch it off from a thread of autograd's, whose stack is not the one that it lies on.
        if self._beneath is not None:
            self._beneath.wanted = False
        self._beneath = mode
        self._stays.here.quiet.beneath = mode
        if mode is not None:
            mode.wanted = True
        self.settle()

    def settle(self) -> None:
        """Bring the modes of this thread into order, after a backward pass for instance."""
        stay = self._stays.here
        if stay.depth == 0:
            stay.quiet.begin()
            stay.quiet.end()

    def __enter__(self) -> None:
        stay = self._stays.here
        if stay.depth == 0:
            stay.entered = time.perf_counter()
            stay.quiet.begin()
        stay.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        stay = self._stays.here
        stay.depth -= 1
        if stay.depth == 0:
            stay.quiet.end()
            self._spent += time.perf_counter() - stay.entered
        if not isinstance(error, Exception):
            return False
        self._on_error(error)
        return not self.strict


def told(error: BaseException) -> str:
    """Return `Type: message` of an error, or its type alone, whatever its own __str__ does."""
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001 - it is the user's code that fails
        return type(error).__name__
