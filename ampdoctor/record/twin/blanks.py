"""Tensors that were allocated and not written to since, as far as the operations tell that we see."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Blanks:
    """Keeps them by storage."""

    def __init__(self) -> None:
        self._makers: dict[int, tuple[weakref.ref[Any], str]] = {}

    def __len__(self) -> int:
        return len(self._makers)

    def add(self, tensor: torch.Tensor, maker: str) -> None:
        """Note a tensor that the operation `maker` has just allocated."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._makers[key] = weakref.ref(storage, lambda ref: self._died(key, ref)), maker

    def take(self, tensor: torch.Tensor) -> str | None:
        """Return what has allocated `tensor` if nothing has written to it; from now on it is like any other."""
        found = self._makers.pop(tensor.untyped_storage()._cdata, None)
        return None if found is None else found[1]

    def clear(self) -> None:
        """Forget all of them."""
        self._makers.clear()

    def _died(self, key: int, ref: weakref.ref[Any]) -> None:
        found = self._makers.get(key)
        if found is not None and found[0] is ref:
            self._makers.pop(key, None)
