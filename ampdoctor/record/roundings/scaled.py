"""Tensors that are fitted into a narrow format by a scale: what flushing, clamping and overflow take from them."""

from __future__ import annotations

from math import floor, log2
from typing import NamedTuple

import torch

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
    size = values.detach().double().abs()
    size = torch.where(torch.isfinite(size), size, 0.0)
    over = size > bound * (1.0 + tolerance)
    excess = torch.where(over, size - bound, 0.0)
    return Beyond(
        int(over.sum()),
        float(excess.square().sum()),
        float(size.square().sum()),
        float(size.max()) if size.numel() else 0.0,
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
    exact, now = before.detach().double(), after.detach().double()
    exact = torch.where(torch.isfinite(exact), exact, 0.0)
    flushed = (now == 0) & (exact != 0)
    return Lost(
        int(torch.count_nonzero(exact)),
        int(flushed.sum()),
        over.elements,
        float(exact[flushed].square().sum()),
        over.squares,
        max(over.all_squares, float(exact.square().sum())),
        max(over.largest, float(exact.abs().max()) if exact.numel() else 0.0),
    )
