"""The floating-point buffers of a module that has just been called: running statistics, which no scaler protects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ampdoctor.record.sites import parts

if TYPE_CHECKING:
    from torch import nn

    from ampdoctor.record.tensor_log import TensorLog

_MOST_ELEMENTS = 1 << 16
"""Statistics have an element a channel; tables of positions and masks are larger, and stay as they are."""


def record_buffers(tensors: TensorLog, module: nn.Module, path: str) -> None:
    """Record the buffers of `module` as its call has left them, where it trains."""
    held = parts(module, "_buffers")
    if not held or not module.training or not torch.is_grad_enabled():
        return
    for name, buffer in held.items():
        if not isinstance(buffer, torch.Tensor) or not buffer.is_floating_point():
            continue
        if 0 < buffer.numel() <= _MOST_ELEMENTS and tensors.known(buffer) is None:
            tensors.add(buffer, (path, "buffer", name))
