"""Times as people read them."""

from __future__ import annotations

import time

_LATEST = 2.0**35
"""Seconds since the epoch beyond which a time is none: some platforms know no later ones."""


def local_time(seconds: float) -> str:
    """Return a time (seconds since the epoch) as the local clock showed it; empty where it is none."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if 0.0 < seconds < _LATEST else ""
