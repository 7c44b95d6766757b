"""Names for who can't see what they belong to."""

from __future__ import annotations

from typing import Any


def labelled(label: str) -> dict[str, Any]:
    """Return what gives a component its name."""
    return {"aria-label": label}
