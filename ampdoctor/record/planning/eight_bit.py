"""A stand-in for AdamW with 8-bit state: it keeps what that of bitsandbytes keeps, and computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 256
"""Elements that share a scale (bitsandbytes' `blocksize` of block-wise optimizers)."""

SMALLEST = 4096
"""Parameters with fewer elements keep FP32 state (its `min_8bit_size`)."""

_MOMENTS = ("exp_avg", "exp_avg_sq")


class EightBitAdamW(torch.optim.Optimizer):
    """Two moments of one byte an element, with an FP32 scale for each block of them.

    Args:
        parameters: what it trains.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__(list(parameters), {})

    def step(self, closure: Any = None) -> Any:
        """Make the state where it is missing; the kernel works in place."""
        del closure  # none is passed
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter].update(_state(parameter))


def _state(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    if parameter.numel() < SMALLEST:
        return {name: torch.zeros_like(parameter, dtype=torch.float32) for name in _MOMENTS}
    blocks = -(-parameter.numel() // BLOCK)
    moments = {name: torch.zeros_like(parameter, dtype=torch.uint8) for name in _MOMENTS}
    return moments | {f"{name}_scale": torch.zeros(blocks, dtype=torch.float32) for name in _MOMENTS}
