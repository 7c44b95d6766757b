"""Is there room for a copy? An examination never costs the user an out-of-memory error."""

from __future__ import annotations

import math
import time
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
    if cuda_in_use():
        return torch.device("cuda", torch.cuda.current_device())
    other = next((name for name in ("xpu", "mps") if _in_use(name)), "cpu")
    return torch.device(other)


def _in_use(name: str) -> bool:
    """Whether an accelerator other than CUDA is there; an MPS device has no context to ask for."""
    module = getattr(torch, name, None)
    asked = getattr(module, "is_initialized", None) or getattr(module, "is_available", None)
    return bool(asked is not None and asked())


def capturing() -> bool:
    """Whether a CUDA graph is being captured: what runs now is replayed for ever, and waiting is forbidden."""
    if not cuda_in_use():
        return False
    try:
        return bool(torch.cuda.is_current_stream_capturing())
    except RuntimeError:
        return True  # an error of the training's, told by whatever asks the device next: let that be the training


def fits(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether a copy of all `tensors` fits on their devices with room to spare."""
    needed: dict[torch.device, int] = {}
    on_host = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if tensor.is_cpu:
            on_host += size
        else:
            needed[tensor.device] = needed.get(tensor.device, 0) + size
    return _fit_on_host(on_host) and all(size <= room(device) for device, size in needed.items())


_NEXT_TO_NOTHING = 64
"""Copies that fitted so often a moment ago need no new look, which reads three files; what was promised since counts
as taken. The training itself can hardly take 63 times as much within `_SHORTLY_S`: memory is filled with some GB/s."""

_SHORTLY_S = 1.0

_host_room: list[tuple[float, float]] = [(-math.inf, 0.0)]
"""When room on the host was looked for, and how much there was."""


def _fit_on_host(size: int) -> bool:
    if not size:
        return True
    now = time.monotonic()
    looked, free = _host_room[0]
    if now - looked < _SHORTLY_S and size * _NEXT_TO_NOTHING <= free:
        _host_room[0] = looked, free - size
        return True
    _host_room[0] = now, room(torch.device("cpu"))
    return size <= _host_room[0][1]


def room(device: torch.device) -> float:
    """Return the bytes that ours may take on `device`."""
    return _RESERVE * _free_bytes(device)


def room_beside_step(device: torch.device) -> float:
    """Return the bytes that ours may hold while a step runs: what the steps before have needed at most is left free."""
    if device.type != "cuda":
        return room(device)
    needed = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
    return _RESERVE * max(0.0, _free_bytes(device) - needed)


def _free_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(free + cached)
    return _free_host_bytes() if device.type == "cpu" else 0.0


def _free_host_bytes() -> float:
    """What the kernel says is available, and a container's limit leaves; without either, copies are taken to fit."""
    free = float("inf")
    lines = _read("/proc/meminfo").splitlines()
    kilobytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    if kilobytes:
        free = float(kilobytes) * 1024
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if limit.isdecimal() and used.isdecimal():
        free = min(free, max(0.0, float(limit) - float(used)))
    return free


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
