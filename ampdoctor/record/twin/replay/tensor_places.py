"""Tensors kept by reference, and where tensors lie in memory."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


class Kept(NamedTuple):
    """A tensor by reference, good as long as it has that version."""

    tensor: torch.Tensor
    version: int | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Kept:
        """Keep `tensor` as it is now."""
        return cls(tensor, version_of(tensor))

    @property
    def unchanged(self) -> bool:
        """Whether nobody has written to it since."""
        return version_of(self.tensor) == self.version


class Lies(NamedTuple):
    """Where a tensor lies in memory, without keeping that."""

    storage: weakref.ref[Any]
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    version: int | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Lies:
        """Return the place of a strided tensor."""
        storage = weakref.ref(tensor.untyped_storage())
        shape, stride = tuple(tensor.shape), tensor.stride()
        return cls(storage, int(tensor.storage_offset()), shape, stride, version_of(tensor))

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether it lies there in order, without gaps."""
        steps = [math.prod(self.shape[n + 1 :]) for n in range(len(self.shape))]
        return all(size == 1 or have == want for size, have, want in zip(self.shape, self.stride, steps, strict=True))

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` is what lay there, unchanged."""
        return self.storage() is tensor.untyped_storage() and self[1:] == Lies.of(tensor)[1:]


def version_of(tensor: torch.Tensor) -> int | None:
    """Return the version counter; tensors made in inference mode have none."""
    return None if tensor.is_inference() else tensor._version
