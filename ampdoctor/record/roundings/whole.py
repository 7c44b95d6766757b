"""Whole numbers that rounding changes: how many, how many different ones are left, and whether they count evenly."""

from __future__ import annotations

from typing import NamedTuple

import torch

MOST_LOOKED_AT = 1 << 18
"""Elements whose differences and different values are looked at: rows of a larger tensor repeat each other."""

_SAMPLE = 64

EVENLY = 0.9
"""Share of the differences that are the same nonzero one: packed sequences start anew now and then."""


class Changed(NamedTuple):
    """What rounding did to whole numbers."""

    changed: int
    largest: float
    distinct: int
    distinct_after: int
    even_steps: bool


def is_whole(values: torch.Tensor) -> bool:
    """Whether all values are finite whole numbers; single ones are so by chance, and so are zeros and ones."""
    if not values.is_floating_point():
        return True
    sample = values.reshape(-1)[:_SAMPLE] if values.is_contiguous() else values[:1]
    return bool((sample.trunc() == sample).all()) and bool((values.trunc() == values).all())


def changed_by(before: torch.Tensor, after: torch.Tensor) -> Changed | None:
    """Return what became of whole numbers; None where all are as they were. What became infinite is not counted."""
    exact, now = before.double(), after.double()
    differ = (exact != now) & torch.isfinite(now)
    changed = int(differ.sum())
    if not changed:
        return None
    some, left = _some(exact), _some(now)
    return Changed(
        changed,
        float(exact.abs().max()),
        int(torch.unique(some).numel()),
        int(torch.unique(left).numel()),
        _evenly(some),
    )


def _some(values: torch.Tensor) -> torch.Tensor:
    """Return so many rows along the first dimension that it is no more than MOST_LOOKED_AT elements."""
    while values.ndim > 1 and values.numel() > MOST_LOOKED_AT:
        rows = max(1, MOST_LOOKED_AT * values.shape[0] // values.numel())
        values = values[:rows] if values.shape[0] > 1 else values[0]
    return values[:MOST_LOOKED_AT]


def _evenly(values: torch.Tensor) -> bool:
    for dim in range(values.ndim):
        if values.shape[dim] < 3:
            continue
        steps = values.diff(dim=dim)
        usual = steps.median()
        if usual != 0 and float((steps == usual).double().mean()) >= EVENLY:
            return True
    return False
