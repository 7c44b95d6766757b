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
        last, self._last[kind] = self._last.get(kind), step
        if last is None:
            return True
        pause = self._pause.setdefault(kind, CLEAN_STEPS)
        begins = step - last > pause
        if begins:
            self._pause[kind] = 2 * pause
        return begins
