"""CUDA streams: memory of twins that is used on another stream than it was allocated on is not given away too early."""

from __future__ import annotations

from typing import Any

import torch


def stream_of(device: torch.device) -> Any:
    """Return the stream that is current on `device`; None where there are no streams."""
    return torch.cuda.current_stream(device) if device.type == "cuda" else None


def used_here(tensor: torch.Tensor, allocated_on: Any) -> torch.Tensor:
    """Return `tensor`; where it is used on another stream than it was allocated on, the allocator is told."""
    if allocated_on is not None:
        current = stream_of(tensor.device)
        if current != allocated_on:
            record(tensor, current)
    return tensor


def record(tensor: torch.Tensor, stream: Any) -> None:
    """Keep the memory of `tensor`, once it is freed, until `stream` is done with what it was given so far."""
    tensor.record_stream(stream)
