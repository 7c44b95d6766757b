"""Large tensors in pieces, so that the copies which are made for looking at them stay small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 18
"""Elements handled at once: 2 MiB for each FP64 copy."""

MOST_LOOKED_AT = 1 << 22
"""Elements looked at where a part tells enough: rows of a larger tensor repeat each other."""


def chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield tensors of one shape piece by piece, as views of at most CHUNK elements."""
    first = tensors[0].detach()
    if first.numel() <= CHUNK:
        yield tuple(t.detach() for t in tensors)
        return
    dim = max(range(first.ndim), key=lambda d: first.shape[d])
    number = -(-first.numel() // CHUNK)
    for pieces in zip(*(t.detach().chunk(number, dim) for t in tensors), strict=True):
        yield from chunks(*pieces)


def first_rows(values: torch.Tensor, most: int = MOST_LOOKED_AT) -> torch.Tensor:
    """Return so many rows along the first dimension, as a view, that it is no more than `most` elements."""
    while values.ndim > 1 and values.numel() > most:
        rows = max(1, most * values.shape[0] // values.numel())
        values = values[:rows] if values.shape[0] > 1 else values[0]
    return values[:most] if values.ndim else values


def finite_size(values: torch.Tensor) -> torch.Tensor:
    """Return magnitudes in FP64, zero for what is not finite."""
    size = values.double().abs()
    return torch.where(torch.isfinite(size), size, 0.0)
