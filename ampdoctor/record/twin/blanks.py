"""Tensors that were allocated and not written to since, as far as the operations tell that we see."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


_MANY = 4096
"""Entries from which on those of tensors that are gone are thrown away."""


class Blanks:
    """Keeps them by storage."""

    def __init__(self) -> None:
        self._makers: dict[int, tuple[weakref.ref[Any], str]] = {}

    def __len__(self) -> int:
        return len(self._makers)

    def add(self, tensor: torch.Tensor, maker: str) -> None:
        """Note a tensor that the operation `maker` has just allocated."""
        storage = tensor.untyped_storage()
        if len(self._makers) >= _MANY:
            alive = {key: (ref, by) for key, (ref, by) in self._makers.items() if ref() is not None}
            self._makers = alive
        # No callback: code of ours in the middle of the user's would swallow a Ctrl-C.
        self._makers[storage._cdata] = weakref.ref(storage), maker

    def take(self, tensor: torch.Tensor) -> str | None:
        """Return what has allocated `tensor` if nothing has written to it; from now on it is like any other."""
        storage = tensor.untyped_storage()
        found = self._makers.pop(storage._cdata, None)
        # The address may belong to another storage by now.
        return found[1] if found is not None and found[0]() is storage else None

    def clear(self) -> None:
        """Forget all of them."""
        self._makers.clear()
