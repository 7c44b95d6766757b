"""What torch's CUDA allocator says of itself."""

from __future__ import annotations

import torch


def allocator_now() -> dict[int, tuple[int, int]]:
    """Return by device the bytes that it has given out, and those that it has reserved, where it has any."""
    devices = range(torch.cuda.device_count())
    said = {n: (torch.cuda.memory_allocated(n), torch.cuda.memory_reserved(n)) for n in devices}
    return {n: (allocated, reserved) for n, (allocated, reserved) in said.items() if reserved}


def allocator_peaks() -> dict[int, int]:
    """Return the most bytes that it has given out so far, by device."""
    return {n: torch.cuda.max_memory_allocated(n) for n in range(torch.cuda.device_count())}
