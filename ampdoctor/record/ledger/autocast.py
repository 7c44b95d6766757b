"""Whether autocast is on for an operation.

The operations that autocast acts on are called by it with itself switched off, so that looking at its switch there says
"off" of just those. Where modules begin and end, and in operations that it lets be, the switch says what holds.
"""

from __future__ import annotations

import torch

from ampdoctor.record.tensors import autocast_dtype
from ampdoctor.record.twin.place import Places

_DEVICES = ("cpu", "cuda")


class AutocastState:
    """What autocast computes in, by how many of its blocks are open on this thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], str | None] = {}

    def look(self) -> None:
        """Nothing of autocast's own is under way on this thread: take its switch for what it is."""
        depth = _depth()
        for device in _DEVICES:
            self._set(depth, device, autocast_dtype(device))

    def of_operation(self, device: str) -> str | None:
        """Return the dtype that autocast is on for, None where it is off, of the operation about to run."""
        depth, dtype = _depth(), autocast_dtype(device)
        if dtype is not None or not depth:
            self._set(depth, device, dtype)
            return dtype
        return self._known.get((depth, device))

    def _set(self, depth: int, device: str, dtype: str | None) -> None:
        self._known[depth, device] = dtype
        for key in [key for key in self._known if key[0] > depth]:
            del self._known[key]


class LedgerPlaces(Places):
    """Looks at autocast's switch where modules begin and end.

    Args:
        autocast: takes what it says.
    """

    def __init__(self, autocast: AutocastState) -> None:
        super().__init__(lines=False)
        self._autocast = autocast

    def enter(self, path: str) -> None:
        """A module begins."""
        self._autocast.look()
        super().enter(path)

    def leave(self, path: str) -> None:
        """A module is done."""
        self._autocast.look()
        super().leave(path)


def _depth() -> int:
    """Return how many autocast blocks this thread is in; torch says so only when it counts one more."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth
