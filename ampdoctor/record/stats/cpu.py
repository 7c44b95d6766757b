"""Statistics of tensors in the CPU's memory, by the compiled kernel (`kernel.c`) where it was built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ampdoctor.record.stats.torch_ops import flat

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = Callable[[int, int, int, int, int], None]

try:
    from ampdoctor.record.stats import _kernel
except ImportError:  # there was no compiler where ampdoctor was installed
    _measure: Measure | None = None
else:
    _measure = _kernel.measure

_KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
"""The dtypes that the kernel reads, by its number for them."""


def compiled() -> bool:
    """Whether the kernel is there; without it plain torch operations do its work, some ten times slower."""
    return _measure is not None


def measured_in_place(tensor: torch.Tensor, out: int) -> bool:
    """Write the statistics of `tensor` to the address `out`, that of EXTRA doubles; return False where this can't.

    Elements are read as they lie in memory; where they lie scattered, they are copied first.
    """
    kind = _KINDS.get(tensor.dtype)
    if kind is None or _measure is None or not tensor.is_cpu or tensor.is_neg():
        return False
    if not tensor.is_contiguous():
        tensor = flat(tensor.detach()).contiguous()
    data, numel = tensor.data_ptr(), tensor.numel()
    if not data and numel:  # zeros that torch keeps no memory for
        return False
    _measure(kind, data, numel, torch.get_num_threads(), out)
    return True
