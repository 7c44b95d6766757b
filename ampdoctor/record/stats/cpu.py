"""Statistics of tensors in the CPU's memory, by the compiled kernel (`kernel.c`) where it was built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ampdoctor.record.stats.torch_ops import flat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Described = tuple[int, int, int]
    """What the kernel is told of a tensor: the number of its dtype, its address, its elements."""

    Measure = Callable[[int, int, int, int, int, int, int], int]
    Compare = Callable[[int, int, int, int, int, float, float, int], None]
    Finite = Callable[[int, int], bool]
    Describe = Callable[[list[Any], tuple[Any, ...], tuple[Any, ...], Any, int], int]
    Copy = Callable[[int, int, int], None]
    Note = Callable[..., None]

Places = NDArray[np.int64]
"""What the kernel is told of several, a row each."""

try:
    from ampdoctor.record.stats import _kernel
except ImportError:  # there was no compiler where ampdoctor was installed
    measure: Measure | None = None
    compare: Compare | None = None
    finite: Finite | None = None
    describe: Describe | None = None
    copy: Copy | None = None
    subtract: Copy | None = None
    note_known: Note | None = None
else:
    measure, compare, finite, describe = _kernel.measure, _kernel.compare, _kernel.finite, _kernel.describe
    copy, subtract, note_known = _kernel.copy, _kernel.subtract, _kernel.note

_KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
"""The dtypes that the kernel reads, by its number for them."""

DTYPES = tuple(_KINDS)
CLASSES = (torch.Tensor, torch.nn.Parameter)
"""What the kernel looks at as it is: other classes may have a say of their own in it."""


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


def places_of(tensors: list[Any]) -> Places | None:
    """Return where tensors lie, where the kernel can read each of them without a copy; else None."""
    places = np.empty((len(tensors), 3), np.int64)
    if measure is None or describe is None:
        return None
    if describe(tensors, CLASSES, DTYPES, torch.strided, places.ctypes.data) < len(tensors):
        return None
    return places


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
    asked = tensors if isinstance(tensors, list) else list(tensors)
    places = np.full((len(asked), 3), _UNREADABLE, np.int64)
    if describe is not None and finite is not None:
        # There may be hundreds on each step: all that is asked of each is asked in one go.
        if describe(asked, CLASSES[:1], DTYPES, torch.strided, places.ctypes.data) == len(asked):
            return bool(finite(places.ctypes.data, len(asked)))
        known = places[places[:, 0] != _UNREADABLE]
        if not finite(known.ctypes.data, len(known)):
            return False
    unread = (asked[place] for place in np.flatnonzero(places[:, 0] == _UNREADABLE))
    others = [t for t in unread if type(t) is torch.Tensor and t.is_cpu and t.layout is torch.strided]
    return _finite_by_torch([t for t in others if t.is_floating_point() and t.numel()])


_UNREADABLE = -1
"""What the kernel says of a tensor that it can't read as it is."""


def _finite_by_torch(tensors: list[torch.Tensor]) -> bool:
    with torch.no_grad():
        sizes = torch._foreach_norm(tensors, float("inf")) if tensors else ()
        return all(bool(torch.isfinite(s)) for s in sizes)
