"""Tensors that are fitted into a narrow format by a scale: what flushing, clamping and overflow take from them."""

from __future__ import annotations

from math import floor, log2
from typing import NamedTuple

import torch

from ampdoctor.record.roundings.chunks import chunks, finite_size

FLOAT8 = {
    getattr(torch, name): float(torch.finfo(getattr(torch, name)).max)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if hasattr(torch, name)
}
"""FP8 dtypes and the largest number of each."""

_HALF_A_PLACE = {
    dtype: 2.0 ** floor(log2(most)) * float(torch.finfo(dtype).eps) / 2.0 / most for dtype, most in FLOAT8.items()
}
"""As a share of the largest number (E4M3fn: 16 of 448): what is beyond by less still rounds to it."""


class Beyond(NamedTuple):
    """What lies beyond the largest number of a format."""

    elements: int
    squares: float
    """Of what clamping takes."""
    all_squares: float
    largest: float


class Lost(NamedTuple):
    """What a cast lost."""

    nonzero: int
    flushed: int
    beyond: int
    squares_flushed: float
    squares_beyond: float
    squares: float
    largest: float


def beyond(values: torch.Tensor, bound: float, tolerance: float) -> Beyond:
    """Return what of `values` is beyond `bound` by more than the share `tolerance` of it, which rounding would take."""
    found = Beyond(0, 0.0, 0.0, 0.0)
    for (part,) in chunks(values):
        size = finite_size(part)
        found = _and(found, size, size > bound * (1.0 + tolerance), bound)
    return found


def overflowed(before: torch.Tensor, after: torch.Tensor) -> Beyond:
    """Return what of `before` a cast to half made infinite: what lies less than half a place beyond rounds back."""
    found = Beyond(0, 0.0, 0.0, 0.0)
    for exact, now in chunks(before, after):
        over = torch.isinf(now) & torch.isfinite(exact)
        found = _and(found, finite_size(exact), over, float(torch.finfo(after.dtype).max))
    return found


def _and(found: Beyond, size: torch.Tensor, over: torch.Tensor, bound: float) -> Beyond:
    excess = torch.where(over, size - bound, 0.0)
    return Beyond(
        found.elements + int(over.sum()),
        found.squares + float(excess.square().sum()),
        found.all_squares + float(size.square().sum()),
        max(found.largest, float(size.max()) if size.numel() else 0.0),
    )


def clamped_to(bound: object) -> torch.dtype | None:
    """Return the FP8 dtype whose largest number `bound` is, of either sign."""
    if not isinstance(bound, (int, float)):
        return None
    return next((d for d, most in FLOAT8.items() if abs(bound) == most), None)


def beyond_float8(values: torch.Tensor, dtype: torch.dtype) -> Beyond:
    """Return what of `values` the FP8 format `dtype` has no number for."""
    return beyond(values, FLOAT8[dtype], _HALF_A_PLACE[dtype])


def lost_in(before: torch.Tensor, after: torch.Tensor, over: Beyond) -> Lost:
    """Return what a cast lost, given what was beyond the format's largest number before it or its clamping."""
    nonzero, gone = 0, 0
    squares, squares_gone, largest = 0.0, 0.0, 0.0
    for part, now in chunks(before, after):
        size = finite_size(part)
        flushed = (now.float() == 0) & (size != 0)
        nonzero += int(torch.count_nonzero(size))
        gone += int(flushed.sum())
        squares += float(size.square().sum())
        squares_gone += float(torch.where(flushed, size, 0.0).square().sum())
        largest = max(largest, float(size.max()) if size.numel() else 0.0)
    return Lost(
        nonzero, gone, over.elements, squares_gone, over.squares, max(over.all_squares, squares),
        max(over.largest, largest),
    )  # fmt: skip
