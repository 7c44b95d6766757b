"""Which thread trains: a recording is of one training, and others may run beside it in the same process."""

from __future__ import annotations

import threading


class TrainingThread:
    """The first thread that does what a training does; another one only once that has ended."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def is_this(self, *, claim: bool = True) -> bool:
        """Whether the calling thread is the one to follow; with `claim` it becomes that where there is none."""
        here, known = threading.current_thread(), self._thread
        if known is here:
            return True
        if known is not None and known.is_alive():
            return False
        if not claim:
            return known is None
        with self._lock:
            if self._thread is known:
                self._thread = here
        return self._thread is here
