"""Python's garbage collector, kept from taking the many objects of one step of ours for a heap that has grown.

An examined step makes some ten thousand objects that live until its rows are written. Where the collector looks at its
middle generation meanwhile, they count as old for good, and soon it goes through the whole heap: with torch loaded a
quarter of a second each time, a third of what a recording of many small layers used to cost. So for the length of such
a step the middle generation waits, and is looked at once the step's objects are gone; and the youngest is looked at as
often as the training's own objects ask for, of which there is one beside ten of ours.
"""

from __future__ import annotations

import gc
import sys

_BY_GENERATION = sys.version_info < (3, 14)
"""From then on the collector goes through the heap piece by piece."""

_NEVER = 1 << 30

_MOST = 2**31 - 1
"""What the collector takes for a threshold at most."""

_OURS = 10
"""Objects that are made on an examined step for one that the training would make."""


class Collector:
    """Has the collector wait during one step after another, and what the user has set put back."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def turn(self, *, many: bool) -> None:
        """A step begins, which will make `many` objects or next to none; those of the one before are gone."""
        self.let_go()
        if many:
            self._hold()

    def _hold(self) -> None:
        if not _BY_GENERATION or not gc.isenabled() or gc.get_threshold()[1] == _NEVER:  # another recorder has it wait
            return
        youngest, _, oldest = self._before = gc.get_threshold()
        gc.set_threshold(_held(youngest), _NEVER, oldest)

    def let_go(self) -> None:
        """Have it look again as the user wants it to."""
        if self._before is None:
            return
        youngest, middle, oldest = self._before
        self._before = None
        if gc.get_threshold() != (_held(youngest), _NEVER, oldest):
            return  # the user has changed it meanwhile
        gc.set_threshold(youngest, middle, oldest)
        if gc.isenabled() and gc.get_count()[1] > middle:
            gc.collect(1)


def _held(youngest: int) -> int:
    """Return what the threshold of the youngest is in the meantime."""
    return min(_OURS * youngest, _MOST)
