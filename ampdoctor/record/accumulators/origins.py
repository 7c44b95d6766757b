"""What the values of a tensor were made from, followed by its storage through the operations of one step.

A storage that no operation of the step has made was there before. While it lives, its address can't be another's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

Origin = int | str
"""The address of a storage that was there before the step, or WEIGHT or GRADIENT."""

WEIGHT = "weight"
GRADIENT = "gradient"

_MOST = 8
"""Origins of one tensor that are kept: what is made from more is no longer made from one in particular."""


class Origins:
    """The origins of the storages of one step.

    Args:
        weights: what optimizers train.
    """

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        plain = [w for w in weights if has_storage(w)]
        self._weights = {address(w) for w in plain}
        gradients = [w.grad for w in plain if w.grad is not None]
        self._gradients = {address(g) for g in gradients if has_storage(g)}
        self._made: dict[int, frozenset[Origin]] = {}

    def was_there(self, tensor: torch.Tensor) -> bool:
        """Whether it was there before the step."""
        return address(tensor) not in self._made

    def of(self, tensors: Iterable[torch.Tensor]) -> frozenset[Origin]:
        """Return what `tensors` were made from; of one that was there before, itself."""
        found: set[Origin] = set()
        for tensor in tensors:
            place = address(tensor)
            if place in self._weights:
                found.add(WEIGHT)
            elif place in self._made:
                found |= self._made[place]
            elif place in self._gradients:
                found.add(GRADIENT)
            else:
                found.add(place)
        return frozenset(found if len(found) <= _MOST else found & {WEIGHT, GRADIENT})

    def meet(self, tensors: Iterable[torch.Tensor]) -> None:
        """Take note of leaves that go into an operation which autograd records: a copy of the model is none."""
        self._weights.update(address(t) for t in tensors if t.requires_grad and t.is_leaf)

    def make(self, results: Iterable[torch.Tensor], origins: frozenset[Origin]) -> None:
        """Take note of new tensors."""
        for tensor in results:
            if has_storage(tensor):
                self._made[address(tensor)] = origins

    def change(self, tensors: Iterable[torch.Tensor], origins: frozenset[Origin]) -> None:
        """Take note of what went into tensors in place."""
        for tensor in tensors:
            place = address(tensor) if has_storage(tensor) else 0
            if place in self._made:
                self._made[place] |= origins


_PLAIN: tuple[Any, ...] = (torch.Tensor, torch.nn.Parameter)


def has_storage(tensor: torch.Tensor) -> bool:
    """Whether it is a plain tensor with memory of its own: not sparse, not a class of the user's."""
    plain = type(tensor) in _PLAIN and tensor.layout is torch.strided
    return plain and tensor.device.type != "meta"


def address(tensor: torch.Tensor) -> int:
    """Return what tells its storage from all others that live."""
    return int(tensor.untyped_storage()._cdata)
