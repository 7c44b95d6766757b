"""Which thread trains: a recording is of one training, and others may run beside it in the same process."""

from __future__ import annotations

import threading


class TrainingThread:
    """The first thread that does what a training does; another one only once that has ended.

    A thread that has only called modules gives way to one that does more: a worker may run the model for it.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._by_module = False
        self._lock = threading.Lock()

    def is_this(self, *, claim: bool = True, by_module: bool = False) -> bool:
        """Whether the calling thread is the one to follow; with `claim` it becomes that where there is none.

        Args:
            claim: become the one to follow.
            by_module: what is called is a module.
        """
        here, known = threading.current_thread(), self._thread
        if known is here:
            self._by_module = self._by_module and (by_module or not claim)
            return True
        gives_way = self._by_module and claim and not by_module
        if known is not None and known.is_alive() and not gives_way:
            return False
        if not claim:
            return known is None
        with self._lock:
            if self._thread is known:
                self._thread, self._by_module = here, by_module
        return self._thread is here
