"""Statistics of a tensor in an accelerator's memory: by Triton where it is ready, else by torch's operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.stats import triton_kernel
from ampdoctor.record.stats.torch_ops import statistics_vector

if TYPE_CHECKING:
    import torch


def device_vector(tensor: torch.Tensor) -> torch.Tensor:
    """Return the statistics of `tensor` as a float64 vector of EXTRA entries on its device (see `layout`)."""
    found = triton_kernel.measure(tensor)
    return statistics_vector(tensor) if found is None else found
