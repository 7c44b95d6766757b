"""Kinds of tensors: those whose values lie in plain memory, and the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.twin.operations import tensors_of
from ampdoctor.record.twin.storages import NotTwinnable

if TYPE_CHECKING:
    from collections.abc import Iterator

HALF_COMPLEX = torch.complex32


def check(tensor: torch.Tensor) -> None:
    """See whether the tensor can have a twin.

    Raises:
        NotTwinnable: it can't.
    """
    if not has_memory(tensor):
        raise NotTwinnable(f"{kind_of(tensor)} tensor")
    if tensor.dtype is HALF_COMPLEX:
        raise NotTwinnable("half complex tensor")


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether its values lie in plain memory that can be laid out once more."""
    plain = (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    )
    real = not tensor.is_meta and not tensor._is_zerotensor()
    return plain and real and not tensor.is_quantized


def dense(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in `value`; for a sparse one, what holds its values."""
    return map(values_of, tensors_of(value))


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the dense tensor that holds the values of `tensor`: itself, unless it is sparse."""
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor


def with_values(sparse: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the sparse tensor with other values at its indices."""
    return torch.sparse_coo_tensor(
        sparse._indices(), values, sparse.shape, is_coalesced=sparse.is_coalesced(), check_invariants=False
    )


def kind_of(tensor: torch.Tensor) -> str:
    """Return what a tensor without plain memory is."""
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    return "quantized" if tensor.is_quantized else type(tensor).__name__


def strided(args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors with plain memory among the arguments."""
    return [t for t in tensors_of((*args, *kwargs.values())) if has_memory(t)]
