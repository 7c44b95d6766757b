"""Curves as text: panels side by side on one scale, drawn in Braille dots on a terminal and in ASCII elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = 3
_NARROWEST_PANEL = 28
_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each of the 4 x 2 dots of a Braille character."""


@dataclass(frozen=True)
class Curve:
    """One curve: a title, and one value per step; what is not finite is left out."""

    title: str
    values: Sequence[float]


def side_by_side(curves: Sequence[Curve], *, width: int, height: int = 12, fine: bool = False) -> str:
    """Return the curves as panels with a common value axis, below each other where `width` holds only one.

    Args:
        curves: what to draw.
        width: columns there are.
        height: lines of each panel.
        fine: draw in Braille dots, 2 x 4 to a character.
    """
    finite = [v for curve in curves for v in curve.values if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if high == low:
        low, high = low - 0.5, high + 0.5
    across = max(1, min(len(curves), (width + _GAP) // (_NARROWEST_PANEL + _GAP)))
    panel_width = (width - _GAP * (across - 1)) // across
    panels = [_panel(curve, (low, high), panel_width, height, fine=fine) for curve in curves]
    rows = [panels[i : i + across] for i in range(0, len(panels), across)]
    return "\n\n".join("\n".join(_beside(lines) for lines in zip(*row, strict=True)) for row in rows)


@dataclass(frozen=True)
class Mark:
    """A character at a value of the curve's place `place`; below the axis where `value` is None."""

    place: int
    value: float | None
    character: str


def marked(
    curve: Curve,
    limits: tuple[float, float],
    names: Sequence[str],
    marks: Sequence[Mark],
    *,
    width: int,
    height: int = 12,
    fine: bool = False,
) -> str:
    """Return one curve with marks on it.

    Args:
        curve: what to draw.
        limits: lowest and highest of the value axis.
        names: what to call each place below the axis, where there is room; empty for no name.
        marks: drawn over the curve.
        width: columns there are.
        height: lines of the canvas.
        fine: draw in Braille dots, 2 x 4 to a character.
    """
    title, *body, floor, _ = _panel(curve, limits, width, height, fine=fine)
    margin = len(floor) - len(floor.lstrip()) + 1
    inner = width - margin
    low, high = limits
    rows = [list(line) for line in body]
    below, last = [" "] * width, max(1, len(curve.values) - 1)
    for mark in marks:
        column = margin + round(mark.place / last * (inner - 1))
        if mark.value is None:
            below[column] = mark.character
            continue
        row = round((high - mark.value) / (high - low) * (height - 1))
        rows[min(max(row, 0), height - 1)][column] = mark.character
    ticks = [" "] * width
    for place, name in enumerate(names):
        column = margin + round(place / last * (inner - 1))
        start = min(max(column - len(name) // 2, 0), width - len(name))
        if name and all(c == " " for c in ticks[max(start - 1, 0) : start + len(name) + 1]):
            ticks[start : start + len(name)] = name
    lines = [title, *("".join(row) for row in rows), floor, "".join(below), "".join(ticks)]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _beside(lines: Sequence[str]) -> str:
    return (" " * _GAP).join(lines).rstrip()


def _panel(curve: Curve, limits: tuple[float, float], width: int, height: int, *, fine: bool) -> list[str]:
    """Return the lines of one panel, each `width` long: title, canvas with value axis, step axis."""
    labels = _labels(limits, height)
    margin = max(len(label) for label in labels)
    inner = width - margin - 2
    wall, corner, floor = ("\u2502", "\u2514", "\u2500") if fine else ("|", "+", "-")
    canvas = _draw(curve.values, limits, inner, height, fine=fine)
    body = [f"{label:>{margin}} {wall}{line}" for label, line in zip(labels, canvas, strict=True)]
    steps = f"step 0{len(curve.values) - 1:>{max(1, inner - 6)}}" if curve.values else "no steps"
    return [
        f"{curve.title[:width]:{width}}",
        *(line[:width] for line in body),
        f"{'':{margin}} {corner}{floor * inner}"[:width],
        f"{'':{margin}}  {steps:{inner}}"[:width],
    ]


def _labels(limits: tuple[float, float], height: int) -> list[str]:
    """Return the label of every line: the limits and the middle, else nothing."""
    low, high = limits
    at = {0: high, height // 2: high - (high - low) * (height // 2) / max(1, height - 1), height - 1: low}
    return [f"{at[line]:.3g}" if line in at else "" for line in range(height)]


def _draw(values: Sequence[float], limits: tuple[float, float], width: int, height: int, *, fine: bool) -> list[str]:
    across, down = (2, 4) if fine else (1, 1)
    lit = _points(values, limits, width * across, height * down)
    if not fine:
        return ["".join("*" if (x, y) in lit else " " for x in range(width)) for y in range(height)]
    cells = [[_BRAILLE] * width for _ in range(height)]
    for x, y in lit:
        cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    return ["".join(chr(cell) if cell != _BRAILLE else " " for cell in line) for line in cells]


def _points(values: Sequence[float], limits: tuple[float, float], width: int, height: int) -> set[tuple[int, int]]:
    """Return the (column, row from the top) that the curve passes, neighbouring columns joined."""
    low, high = limits
    lit: set[tuple[int, int]] = set()
    before: int | None = None
    for x in range(width):
        value = _value_at(values, x / max(1, width - 1))
        if value is None:
            before = None
            continue
        y = round((high - value) / (high - low) * (height - 1))
        start = y if before is None else before + (y > before) - (y < before)
        lit.update((x, between) for between in range(min(start, y), max(start, y) + 1))
        before = y
    return lit


def _value_at(values: Sequence[float], share: float) -> float | None:
    """Return the value at `share` of the way along, between its two neighbours; None where it is not finite."""
    if not values:
        return None
    place = share * (len(values) - 1)
    left = math.floor(place)
    right = min(left + 1, len(values) - 1)
    value = values[left] + (values[right] - values[left]) * (place - left) if place > left else values[left]
    return value if math.isfinite(value) else None
