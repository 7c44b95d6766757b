"""Numbers as people read them in a finding."""

from __future__ import annotations

from math import floor, log2


def percent(share: float) -> str:
    """Return a share as a percentage that never rounds to a false "none" or "all": `99.98 %`, `< 0.01 %`."""
    if share in {0.0, 1.0}:
        return f"{share:.0%}".replace("%", " %")
    if share < 1e-4:
        return "< 0.01 %"
    if share > 1.0 - 1e-4:
        return "> 99.99 %"
    digits = 2 if share > 0.99 or share < 0.01 else 1
    return f"{100 * share:.{digits}f} %"


def scale_text(scale: float) -> str:
    """Return a loss scale: `1024`, `65536 (2^16)`, `2^22`."""
    exponent = log2(scale) if scale > 0 else 0.5
    if exponent != floor(exponent):
        return f"{scale:.4g}"
    if not 0 <= exponent <= 20:
        return f"2^{exponent:.0f}"
    return f"{scale:.0f} (2^{exponent:.0f})" if scale > 1024 else f"{scale:.0f}"


def scale_code(scale: float) -> str:
    """Return a power of two as Python."""
    return f"{scale:.1f}" if 1.0 <= scale <= 65536.0 else f"2.0**{log2(scale):.0f}"


def number(value: float) -> str:
    """Return a value in at most four digits: `65504`, `3.84e+05`, `0.0312`."""
    return f"{value:.0f}" if 1000 <= abs(value) < 100_000 else f"{value:.3g}"


def bytes_text(count: float) -> str:
    """Return an amount of memory: `512 bytes`, `3.5 MiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= 1000 * size:
            return f"{count / size:.0f} {unit}"
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return `1 step` or `3 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def place(name: str) -> str:
    """Return a module or parameter as it is set in text; the outermost module has no name."""
    if not name:
        return "the model as a whole"
    return name if name == "the loss" else f"`{name}`"
