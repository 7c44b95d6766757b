"""How much memory a step at hand may keep from being freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class Budget:
    """Adds up what is kept of a step.

    Args:
        limit: the most bytes, or what returns them, asked once a step.

    Attributes:
        taken: bytes of the step so far.
    """

    def __init__(self, limit: float | Callable[[], float]) -> None:
        self._limit = limit
        self._most: float | None = None
        self.taken = 0

    def take(self, tensor: torch.Tensor) -> str | None:
        """Add a tensor; returns what is wrong where that is too much."""
        if not isinstance(tensor, nn.Parameter):
            self.taken += tensor.numel() * tensor.element_size()
        if self._most is None:
            self._most = self._limit() if callable(self._limit) else self._limit
        if self.taken <= self._most:
            return None
        return f"its inputs and gradients take more than {int(self._most) >> 20} MiB"

    def clear(self) -> None:
        """A step is over."""
        self.taken, self._most = 0, None
