"""When trouble begins: the first time, and again after it has been away for long enough."""

from __future__ import annotations

CLEAN_STEPS = 25
"""Steps without it after which trouble of a kind begins anew; twice as many each time, so that what comes and goes is
cheap."""


class Onsets:
    """Follows trouble by its kind."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._pause: dict[str, int] = {}

    def begins(self, kind: str, step: int) -> bool:
        """Whether the trouble `kind`, seen on `step`, has only just begun."""
        begins = self.would_begin(kind, step)
        if begins and kind in self._last:
            self._pause[kind] = 2 * self._pause.get(kind, CLEAN_STEPS)
        self._last[kind] = step
        return begins

    def would_begin(self, kind: str, step: int) -> bool:
        """Whether it would be an onset if `kind` were seen on `step`."""
        last = self._last.get(kind)
        return last is None or step - last > self._pause.get(kind, CLEAN_STEPS)
