"""Whole numbers that rounding changes: how many, how many different ones are left, and whether they count evenly."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import torch

from ampdoctor.record.roundings.chunks import chunks, first_rows

_MOST_COMPARED = 1 << 18
"""Elements whose differences and different values are looked at."""

_SAMPLE = 64

EVENLY = 0.9
"""Share of the differences that are the same nonzero one: packed sequences start anew now and then."""


class Changed(NamedTuple):
    """What rounding did to whole numbers, of as many as were looked at."""

    numel: int
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
    parts = chain(chunks(first_rows(sample)), chunks(first_rows(values)))
    return all(bool((part.trunc() == part).all()) for (part,) in parts)


def changed_by(before: torch.Tensor, after: torch.Tensor) -> Changed | None:
    """Return what became of whole numbers; None where all are as they were. What became infinite is not counted."""
    before, after = first_rows(before), first_rows(after)
    changed, largest = 0, 0.0
    for exact, now in chunks(before, after):
        changed += int(((exact.double() != now.double()) & torch.isfinite(now)).sum())
        largest = max(largest, float(exact.double().abs().max()) if exact.numel() else 0.0)
    if not changed:
        return None
    some, left = (first_rows(t, _MOST_COMPARED).double() for t in (before, after))
    distinct, distinct_after = (int(torch.unique(t).numel()) for t in (some, left))
    return Changed(before.numel(), changed, largest, distinct, distinct_after, _evenly(some))


def _evenly(values: torch.Tensor) -> bool:
    for dim in range(values.ndim):
        if values.shape[dim] < 3:
            continue
        steps = values.diff(dim=dim)
        usual = steps.median()
        if usual != 0 and float((steps == usual).double().mean()) >= EVENLY:
            return True
    return False
