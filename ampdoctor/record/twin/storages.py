"""Twins, kept by storage.

A twin of a storage is a flat piece of memory in another format; the twin of a tensor is the tensor's size, stride and
offset laid over it. So views and in-place operations follow by geometry, and which tensor object looks at a storage
does not matter. Storages are watched weakly: a twin dies with the storage that it is a twin of.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from ampdoctor.record.twin.counterfactual import HALVES


class NotTwinnable(Exception):  # noqa: N818 - a reason, told in the trace, and no error of anybody's
    """The tensor can't have a twin; the message says why."""


@dataclass(eq=False)
class Twin:
    """The twin of one storage.

    Attributes:
        of: the storage itself, weakly.
        storage: its values in the twin's world.
        dtype: dtype of the values that are half in the run.
        narrow: bytes of an element in the run.
        wide: bytes of an element of the twin.
        borrowed: `storage` belongs to somebody else and is copied before it is written to.
        verbatim: the twin as it is, where its shape is another than the run's (a workspace, for instance).
    """

    of: weakref.ref[Any]
    storage: Any
    dtype: torch.dtype
    narrow: int
    wide: int
    borrowed: bool = False
    verbatim: torch.Tensor | None = None


class TwinStorages:
    """The twins of one counterfactual.

    Attributes:
        bytes: memory that they hold now.
        most_bytes: the most that they have held.
    """

    def __init__(self) -> None:
        self._twins: dict[int, Twin] = {}
        self._lent: dict[int, list[weakref.ref[Twin]]] = {}
        self._held: dict[int, int] = {}
        self.bytes = 0
        self.most_bytes = 0

    def __len__(self) -> int:
        return len(self._twins)

    def clear(self) -> None:
        """Forget all of them."""
        self._twins.clear()
        self._lent.clear()
        self._held.clear()
        self.bytes = 0

    def of(self, tensor: torch.Tensor) -> Twin | None:
        """Return the twin of the tensor's storage, None where the run's own values stand for it."""
        return self._twins.get(tensor.untyped_storage()._cdata)

    def view(self, tensor: torch.Tensor, twin: Twin) -> torch.Tensor:
        """Return the twin of `tensor`, given that of its storage.

        Raises:
            NotTwinnable: it looks at the bits of a half number, which the twin does not have.
        """
        if twin.verbatim is not None:
            return twin.verbatim
        if twin.narrow != twin.wide and tensor.dtype not in HALVES:
            raise NotTwinnable(f"looks at half numbers as {tensor.dtype}")
        dtype = twin.dtype if tensor.dtype in HALVES else tensor.dtype
        self._fit(tensor, twin)
        flat = torch.empty(0, dtype=dtype, device=tensor.device)
        return flat.set_(twin.storage, tensor.storage_offset(), tensor.shape, tensor.stride())

    def forget(self, tensor: torch.Tensor) -> None:
        """From now on the tensor's own values stand for it."""
        self._drop(tensor.untyped_storage()._cdata)

    def put(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Make `values` the twin of `tensor`, which has its storage for itself."""
        if values.shape != tensor.shape:
            self._keep(tensor, values.untyped_storage(), values.dtype, verbatim=values)
            return
        same = values.stride() == tensor.stride() or values.numel() <= 1
        if same and values.storage_offset() == tensor.storage_offset():
            self._keep(tensor, values.untyped_storage(), values.dtype)
            return
        twin = self.allot(tensor, values.dtype)
        self.view(tensor, twin).copy_(values)

    def allot(self, tensor: torch.Tensor, dtype: torch.dtype) -> Twin:
        """Return a new twin of the tensor's storage, without values yet; `dtype` is that of its halves."""
        narrow, wide = _sizes(tensor, dtype)
        size = tensor.untyped_storage().nbytes() // narrow * wide
        storage = torch.UntypedStorage(size, device=tensor.device)
        return self._keep(tensor, storage, dtype)

    def copy_of(self, tensor: torch.Tensor, dtype: torch.dtype) -> Twin:
        """Return a new twin of the tensor's whole storage with the run's values in `dtype`."""
        storage = tensor.untyped_storage()
        elements = storage.nbytes() // tensor.element_size()
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            storage, 0, (elements,), (1,)
        )
        values = whole.to(dtype if tensor.dtype in HALVES else tensor.dtype, copy=True)
        return self._keep(tensor, values.untyped_storage(), values.dtype)

    def lend(self, tensor: torch.Tensor, source: torch.Tensor) -> bool:
        """Make the values of `source` (a twin, or a tensor of the run) the twin of `tensor` without a copy.

        Returns whether it could: they must lie in memory alike.
        """
        alike = source.stride() == tensor.stride() and source.storage_offset() == 0
        if not alike or tensor.storage_offset() != 0 or source.shape != tensor.shape:
            return False
        twin = self._keep(tensor, source.untyped_storage(), source.dtype, borrowed=True)
        self._lent.setdefault(twin.storage._cdata, []).append(weakref.ref(twin))
        return True

    def before_write(self, tensor: torch.Tensor) -> None:
        """The run is about to write to `tensor`: nobody may see that through a borrowed twin."""
        twin = self.of(tensor)
        if twin is not None and twin.borrowed:
            self._own(twin)
        lender = twin.storage if twin is not None else tensor.untyped_storage()
        for borrower in self._lent.pop(lender._cdata, []):
            if (other := borrower()) is not None and other.borrowed:
                self._own(other)

    def _own(self, twin: Twin) -> None:
        self._release(twin.storage)
        twin.storage = twin.storage.clone()
        twin.borrowed = False
        self._hold(twin.storage, ours=True)

    def _keep(
        self,
        tensor: torch.Tensor,
        storage: Any,
        dtype: torch.dtype,
        *,
        borrowed: bool = False,
        verbatim: torch.Tensor | None = None,
    ) -> Twin:
        of = tensor.untyped_storage()
        key, narrow_wide = of._cdata, _sizes(tensor, dtype)
        self._drop(key)
        twin = Twin(
            weakref.ref(of, lambda ref: self._died(key, ref)),
            storage,
            dtype,
            *narrow_wide,
            borrowed,
            verbatim,
        )
        self._twins[key] = twin
        self._hold(storage, ours=not borrowed)
        return twin

    def _died(self, key: int, ref: weakref.ref[Any]) -> None:
        # The address may belong to another storage by now.
        if key in self._twins and self._twins[key].of is ref:
            self._drop(key)

    def _drop(self, key: int) -> None:
        twin = self._twins.pop(key, None)
        if twin is not None:
            self._release(twin.storage)

    def _hold(self, storage: Any, *, ours: bool) -> None:
        """Count memory of ours once, however many twins lie in it; what belongs to the run is not counted."""
        key = storage._cdata
        if key in self._held:
            self._held[key] += 1
        elif ours:
            self._held[key] = 1
            self._grow(storage.nbytes())

    def _release(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._held:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
                self.bytes -= storage.nbytes()

    def _grow(self, size: int) -> None:
        self.bytes += size
        self.most_bytes = max(self.most_bytes, self.bytes)

    def _fit(self, tensor: torch.Tensor, twin: Twin) -> None:
        """The run may have resized its storage without an operation that we saw."""
        needed = tensor.untyped_storage().nbytes() // twin.narrow * twin.wide
        if twin.storage.nbytes() < needed:
            if twin.borrowed:
                self._own(twin)
            self._grow(needed - twin.storage.nbytes())
            twin.storage.resize_(needed)


def _sizes(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[int, int]:
    """Return the bytes of an element of `tensor` and of its twin; only halves change their size."""
    size = tensor.element_size()
    return (size, dtype.itemsize) if tensor.dtype in HALVES else (size, size)
