"""Statistics of one tensor as a vector on its device, by the fastest that is ready there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ampdoctor.record.stats import cpu, triton_kernel
from ampdoctor.record.stats.layout import EXTRA, HEADER, LOWEST
from ampdoctor.record.stats.torch_ops import statistics_vector

if TYPE_CHECKING:
    from ampdoctor.record.stats.cpu import Described


def fast_vector(tensor: torch.Tensor) -> torch.Tensor:
    """Return the statistics of `tensor` as a float64 vector of EXTRA entries on its device (see `layout`)."""
    if not tensor.is_cpu:
        found = triton_kernel.measure(tensor)
        return statistics_vector(tensor) if found is None else found
    readable = cpu.readable(tensor)
    described = None if readable is None else cpu.described(readable)
    return statistics_vector(tensor) if described is None else _by_kernel(described)


def _by_kernel(described: Described) -> torch.Tensor:
    tensor = np.array(described, np.int64)
    row, bins, vector = np.empty(HEADER + 2), np.empty(EXTRA - HEADER, np.int64), np.zeros(EXTRA)
    start = np.empty(1, np.int64)
    addresses = (row.ctypes.data, start.ctypes.data, bins.ctypes.data)
    count = cpu.measure(tensor.ctypes.data, 1, torch.get_num_threads(), *addresses, 0)  # type: ignore[misc]
    vector[:HEADER] = row[:HEADER]
    if count:
        first = HEADER + int(row[HEADER]) - LOWEST
        vector[first : first + count] = bins[:count]
    return torch.from_numpy(vector)
