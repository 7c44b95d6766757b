"""Where one step ends and the next begins, when several optimizers take turns.

A step ends once every optimizer that is expected has stepped. Which are expected is learned: all that live at first,
and where one of them steps again before the others have, those that had stepped by then.
"""

from __future__ import annotations


class StepBoundaries:
    """Follows the optimizers' steps by name."""

    def __init__(self) -> None:
        self._expected: set[str] = set()
        self._stepped: set[str] = set()

    def begins_anew(self, name: str) -> bool:
        """Whether `name`, about to step, has stepped already: the step should have ended before."""
        if name not in self._stepped:
            return False
        self._expected = set(self._stepped)
        self._stepped.clear()
        return True

    def ends(self, name: str, alive: set[str]) -> bool:
        """Whether the step ends now that `name` has stepped (or was skipped); `alive` are all optimizers known."""
        self._stepped.add(name)
        if not self._expected:
            self._expected = set(alive)
        if not self._expected & alive <= self._stepped:
            return False
        self._stepped.clear()
        return True
