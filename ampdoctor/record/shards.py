"""Tensors that are spread over ranks (DTensor, as FSDP2's parameters and gradients are): what of them lies here.

Nothing of another rank is asked for: it would have to take part. Each rank measures what it holds and says which part
of the whole that is; the parts are put together when the trace is read.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


class Part(NamedTuple):
    """Which part of a tensor a rank holds.

    Attributes:
        number: from 0; ranks that hold copies of one part say the same.
        parts: how many parts there are.
        shape: the shape of the whole.
    """

    number: int
    parts: int
    shape: tuple[int, ...]


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds of `tensor`: the tensor itself where it is not spread.

    Where the ranks hold terms of a sum that was not taken yet, no rank holds any of its values: it comes back as it is,
    and can't be measured.
    """
    if type(tensor) in _PLAIN or part_of(tensor) is None:
        return tensor
    spread: Any = tensor
    with torch.no_grad():
        held: torch.Tensor = spread.to_local()
    return held


def part_of(tensor: torch.Tensor) -> Part | None:
    """Return which part of `tensor` this rank holds; None where it is not spread, or none of its values are here."""
    if type(tensor) in _PLAIN:
        return None
    spread: Any = tensor
    if type(tensor) is not getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None):
        return None
    mesh = spread.device_mesh
    place = mesh.get_coordinate()
    if place is None or any(placement.is_partial() for placement in spread.placements):
        return None
    number, parts = 0, 1
    for dimension, placement in enumerate(spread.placements):
        if not placement.is_replicate():
            size = mesh.size(dimension)
            number, parts = number * size + place[dimension], parts * size
    return Part(number, parts, tuple(spread.shape))
