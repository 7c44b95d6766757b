"""How figures say amounts of memory, and names that may be long."""

from __future__ import annotations

from ampdoctor_dashboard.figures.style import plain

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))

LONGEST = 42
"""Characters of a name on an axis; the whole of it is said when one points at it."""

LONGEST_TOLD = 300
"""Characters of a name that is said when one points at it."""


def unit_of(most: float) -> tuple[str, int]:
    """Return the unit in which the largest of several amounts of memory reads well, and its bytes."""
    return next(((name, size) for name, size in UNITS if most >= size), ("bytes", 1))


def short(name: str, longest: int = LONGEST) -> str:
    """Return a name of a trace for a figure, without its middle where it is long: both ends of a path matter."""
    if len(name) > longest:
        name = f"{name[: longest // 3]} … {name[-(longest - longest // 3 - 3) :]}"
    return plain(name)
