"""Statistics of tensors in the CPU's memory, by the compiled kernel (`kernel.c`) where it was built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ampdoctor.record.stats.torch_ops import flat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Described = tuple[int, int, int]
    """What the kernel is told of a tensor: the number of its dtype, its address, its elements."""

    Measure = Callable[[int, int, int, int, int], int]
    Compare = Callable[[int, int, int, int, int, float, float, int], None]
    Finite = Callable[[int, int], bool]

try:
    from ampdoctor.record.stats import _kernel
except ImportError:  # there was no compiler where ampdoctor was installed
    measure: Measure | None = None
    compare: Compare | None = None
    finite: Finite | None = None
else:
    measure, compare, finite = _kernel.measure, _kernel.compare, _kernel.finite

_KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
"""The dtypes that the kernel reads, by its number for them."""


_NUMBERS = 13


def compiled() -> bool:
    """Whether the kernel is there; without it plain torch operations do its work, some ten times slower."""
    return measure is not None


def readable(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return `tensor`, or a copy, as the kernel can read it; None where it can't.

    Elements are read as they lie in memory; where they lie scattered, they are copied first.
    """
    if tensor.dtype not in _KINDS or measure is None or not tensor.is_cpu or tensor.is_neg():
        return None
    return tensor if tensor.is_contiguous() else flat(tensor.detach()).contiguous()


def described_as_it_is(tensor: torch.Tensor) -> Described | None:
    """Return what the kernel is told of any tensor that it can read without a copy; None of others."""
    # Asked of each of thousands of tensors in a step: all in one place, what rules out most first.
    kind = _KINDS.get(tensor.dtype)
    if kind is None or measure is None or not tensor.is_cpu or not tensor.is_contiguous() or tensor.is_neg():
        return None
    data, numel = tensor.data_ptr(), tensor.numel()
    return (kind, data, numel) if data or not numel else None


def described(tensor: torch.Tensor) -> Described | None:
    """Return what the kernel is told of a `readable` tensor; None of zeros that torch keeps no memory for."""
    data, numel = tensor.data_ptr(), tensor.numel()
    return (_KINDS[tensor.dtype], data, numel) if data or not numel else None


def compared(values: torch.Tensor, twin: torch.Tensor, edges: tuple[float, float]) -> torch.Tensor | None:
    """Return what the kernel says of `values` beside an FP32 twin (record/twin/compare.py); None where it can't.

    Args:
        values: one-dimensional.
        twin: as long.
        edges: magnitudes below which values count as subnormal, and their twins as too small.
    """
    usual = values.is_cpu and twin.is_cpu and values.is_contiguous() and twin.is_contiguous()
    usual = usual and values.numel() == twin.numel()
    if compare is None or not usual or values.dtype not in _KINDS or twin.dtype is not torch.float32:
        return None
    if values.is_neg() or twin.is_neg() or (values.numel() and not (values.data_ptr() and twin.data_ptr())):
        return None
    out = torch.empty(_NUMBERS, dtype=torch.float64)
    threads = torch.get_num_threads()
    compare(
        _KINDS[values.dtype], values.data_ptr(), twin.data_ptr(), values.numel(), threads, *edges, out.data_ptr()
    )  # fmt: skip
    return out


def all_finite(tensors: Iterable[torch.Tensor | None]) -> bool:
    """Whether no plain tensor of floating-point numbers on the CPU holds an inf or NaN; of others nothing is said."""
    known: list[Described] = []
    others: list[torch.Tensor] = []
    # There may be hundreds on each step: all that is asked of each is asked in one place.
    for tensor in tensors:
        if type(tensor) is not torch.Tensor or not tensor.is_cpu or tensor.layout is not torch.strided:
            continue
        kind = _KINDS.get(tensor.dtype)
        if kind is not None and finite is not None and tensor.is_contiguous() and (data := tensor.data_ptr()):
            known.append((kind, data, tensor.numel()))
        elif tensor.is_floating_point() and tensor.numel():
            others.append(tensor)
    place = np.array(known, np.int64)
    if known and finite is not None and not finite(place.ctypes.data, len(known)):
        return False
    with torch.no_grad():
        sizes = torch._foreach_norm(others, float("inf")) if others else ()
        return all(bool(torch.isfinite(s)) for s in sizes)
