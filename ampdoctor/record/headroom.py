"""Is there room for a copy? An examination never costs the user an out-of-memory error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

_RESERVE = 0.5
"""Share of the free memory that a copy may take: the user's own next allocation comes first."""


def cuda_in_use() -> bool:
    """Whether the training has a CUDA context; ours would be the first otherwise, and cost memory."""
    return bool(torch.cuda.is_initialized())


def device_in_use() -> torch.device:
    """Return the device that the training takes its memory from."""
    return (
        torch.device("cuda", torch.cuda.current_device()) if cuda_in_use() else torch.device("cpu")
    )


def capturing() -> bool:
    """Whether a CUDA graph is being captured: what runs now is replayed for ever, and waiting is forbidden."""
    return cuda_in_use() and torch.cuda.is_current_stream_capturing()


def fits(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether a copy of all `tensors` fits on their devices with room to spare."""
    needed: dict[torch.device, int] = {}
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        needed[tensor.device] = needed.get(tensor.device, 0) + size
    return all(size <= room(device) for device, size in needed.items())


def room(device: torch.device) -> float:
    """Return the bytes that ours may take on `device`."""
    return _RESERVE * _free_bytes(device)


def _free_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(free + cached)
    return _free_host_bytes() if device.type == "cpu" else 0.0


def _free_host_bytes() -> float:
    """What the kernel says is available; without that (not Linux), copies are taken to fit."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return float("inf")
    kilobytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return float(kilobytes) * 1024 if kilobytes else float("inf")
