"""How a tensor lies in its storage: shape, strides, offset, and whether it means the conjugate or the negative."""

from __future__ import annotations

from typing import Any

import torch

Geometry = tuple[torch.Size, tuple[int, ...], int]

_LARGE = 1 << 20
_SHARE = 4
"""Below a quarter of a storage of more than a MiB, a cast of the part that is looked at costs less than a twin."""


def fill(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copy `values` into `target`, where several elements of both may lie in one place of memory."""
    for dimension, (size, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
        if size > 1 and stride == 0:
            target, values = target.narrow(dimension, 0, 1), values.narrow(dimension, 0, 1)
    target.copy_(values)


def small_part(tensor: torch.Tensor) -> bool:
    """Whether it looks at little of a large storage: not worth a twin of the whole, unless it is written to."""
    whole = tensor.untyped_storage().nbytes()
    return whole > _LARGE and tensor.numel() * tensor.element_size() < whole / _SHARE


def laid_over(storage: Any, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return `storage` as `tensor` looks at its own, in `dtype`."""
    flat = torch.empty(0, dtype=dtype, device=tensor.device)
    flat = flat.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    if tensor.is_conj():
        flat = flat.conj()
    return torch._neg_view(flat) if tensor.is_neg() else flat


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape lie in memory in the same order and with the same meaning."""
    if one.is_conj() != other.is_conj() or one.is_neg() != other.is_neg():
        return False
    return one.stride() == other.stride() or one.numel() <= 1


def geometry(tensor: torch.Tensor) -> Geometry:
    """Return where in its storage the tensor lies."""
    return tensor.shape, tensor.stride(), int(tensor.storage_offset())
