"""What was derived of a run and is worth keeping: each thing worked out once, the oldest forgotten."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class Kept(Generic[T]):
    """The last few things of a kind; who asks for one that is being worked out waits for it.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Hashable, T] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is kept under `key`; what `make` returns where there is nothing yet."""
        with self._lock:
            if key not in self._found:
                found = make()
                while len(self._found) >= self._most:
                    self._found.pop(next(iter(self._found)))
                self._found[key] = found
            return self._found[key]
