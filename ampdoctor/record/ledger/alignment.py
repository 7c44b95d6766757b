"""Sizes that miss tensor cores: of half matrix products and convolutions they should be multiples of 8.

Source: NVIDIA, "Matrix Multiplication Background", Tensor Core Requirements: 16 bytes, that is 8 elements of FP16 and
16 of FP8. Newer libraries pad others, which takes time and is not done for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    Sizes = tuple[int, ...]

_BYTES = 16


def misaligned(op: str, args: Sequence[Any]) -> bool:
    """Whether the operation is a half product or convolution with a size that is no multiple of 16 bytes."""
    if op in {"aten.mm", "aten.bmm"}:
        return _product(args[:2])
    if op in {"aten.addmm", "aten.baddbmm"}:
        return _product(args[1:3])
    if op == "aten.convolution":
        return _channels(args[1], args[8])
    return False


def _product(tensors: Sequence[Any]) -> bool:
    left, right = tensors
    return _misses(left.dtype, (*left.shape[-2:], right.shape[-1]))


def _channels(weight: Any, groups: int) -> bool:
    """A convolution with one channel a group is no matrix product."""
    channels = weight.shape[:2]
    return channels[1] > 1 and _misses(weight.dtype, (channels[0] // groups, channels[1]))


def _misses(dtype: torch.dtype, sizes: Iterable[int]) -> bool:
    elements = _BYTES // dtype.itemsize
    return dtype.is_floating_point and dtype.itemsize < 4 and any(size % elements for size in sizes)
