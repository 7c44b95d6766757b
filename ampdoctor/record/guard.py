"""Fail open: an error of ours disables us, never the training."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Guard:
    """A context in which every Exception is ours: it is handed to `on_error` and swallowed.

    It also keeps the time spent inside, so that the recorder knows what it costs.

    Args:
        on_error: told once; it detaches the recorder.
        strict: raise instead, for tests.
    """

    def __init__(self, on_error: Callable[[Exception], None], *, strict: bool = False) -> None:
        self._on_error = on_error
        self.strict = strict
        self._depth = 0
        self._entered = 0.0
        self._spent = 0.0

    def take_seconds(self) -> float:
        """Return the seconds spent inside since the last call."""
        spent, self._spent = self._spent, 0.0
        return spent

    def __enter__(self) -> None:
        if self._depth == 0:
            self._entered = time.perf_counter()
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._depth -= 1
        if self._depth == 0:
            self._spent += time.perf_counter() - self._entered
        if not isinstance(error, Exception):
            return False
        self._on_error(error)
        return not self.strict
