"""Twins, kept by storage.

A twin of a storage is a flat piece of memory in another format; the twin of a tensor is the tensor's size, stride and
offset laid over it. So views and in-place operations follow by geometry, and which tensor object looks at a storage
does not matter. Storages are watched weakly: a twin dies with the storage that it is a twin of.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch

from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.geometry import alike, fill, geometry, laid_over
from ampdoctor.record.twin.streams import stream_of, used_here
from ampdoctor.record.twin.threads import LOCK
from ampdoctor.record.twin.twin import Twin, Watch


class NotTwinnable(Exception):  # noqa: N818 - a reason, told in the trace, and no error of anybody's
    """The tensor can't have a twin; the message says why."""


@dataclass(eq=False)
class Budget:
    """Memory for the twins of several counterfactuals, in bytes; who needs more is out of memory."""

    limit: float = math.inf
    used: int = 0


class TwinStorages:
    """The twins of one counterfactual.

    Attributes:
        bytes: memory that they hold now.
        most_bytes: the most that they have held.
        budget: what they may hold, together with others.
    """

    def __init__(self) -> None:
        self._twins: dict[int, Twin] = {}
        self._dead: deque[Watch] = deque()
        self._lent: dict[int, list[weakref.ref[Twin]]] = {}
        self._held: dict[int, list[int]] = {}
        self.bytes = 0
        self.most_bytes = 0
        self.budget = Budget()

    def __len__(self) -> int:
        self._bury()
        return len(self._twins)

    def clear(self) -> None:
        """Forget all of them."""
        with LOCK:
            self._twins.clear()
            self._lent.clear()
            self._held.clear()
            self.budget.used -= self.bytes
            self.bytes = 0

    def of(self, tensor: torch.Tensor) -> Twin | None:
        """Return the twin of the tensor's storage, None where the run's own values stand for it."""
        if self._dead:
            self._bury()
        return self._twins.get(tensor.untyped_storage()._cdata)

    def view(self, tensor: torch.Tensor, twin: Twin) -> torch.Tensor:
        """Return the twin of `tensor`, given that of its storage.

        Raises:
            NotTwinnable: it looks at the bits of a half number, which the twin does not have; at a part of what has
                another shape there; or at what is not there any more.
        """
        if twin.verbatim is not None:
            if twin.place != geometry(tensor):
                raise NotTwinnable("looks at what has another shape in the twin")
            return used_here(twin.verbatim, twin.stream)
        if twin.narrow != twin.wide and tensor.dtype not in HALVES:
            raise NotTwinnable(f"looks at half numbers as {tensor.dtype}")
        # A half that lies in the twin of other numbers (a piece of raw memory) is the half that it is in the run.
        half = tensor.dtype in HALVES and tensor.element_size() == twin.narrow
        self._fit(tensor, twin)
        view = laid_over(twin.storage, tensor, twin.dtype if half else tensor.dtype)
        return used_here(view, twin.stream)

    def writable(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the twin of `tensor`, made if there is none, to write to from outside any operation."""
        self.before_write(tensor)
        return self.view(tensor, self.of(tensor) or self.copy_of(tensor, dtype))

    def forget(self, tensor: torch.Tensor) -> None:
        """From now on the tensor's own values stand for it."""
        self._drop(tensor.untyped_storage()._cdata)

    def put(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Make `values` the twin of `tensor`, which has its storage for itself."""
        if values._is_zerotensor():
            values = torch.zeros_like(tensor, dtype=values.dtype)
        if values.shape != tensor.shape:
            self._keep(tensor, values.untyped_storage(), values.dtype, verbatim=values)
        elif alike(values, tensor) and values.storage_offset() == tensor.storage_offset():
            self._keep(tensor, values.untyped_storage(), values.dtype)
        else:
            fill(self.view(tensor, self.allot(tensor, values.dtype)), values)

    def take_over(self, tensor: torch.Tensor, half: torch.dtype) -> None:
        """What the run has written to `tensor` stands for the twin as well; `half` is what half is there."""
        twin = self.of(tensor)
        if twin is not None and twin.verbatim is not None:
            self.forget(tensor)
            twin = None
        if twin is None and tensor.dtype in HALVES and tensor.dtype is not half:
            twin = self.allot(tensor, half)
        if twin is not None:
            try:
                fill(self.view(tensor, twin), tensor)
            except NotTwinnable:
                self.forget(tensor)

    def take_over_changed(self, tensor: torch.Tensor, before: torch.Tensor) -> None:
        """What the run has changed in `tensor`, which was `before`, stands for the twin as well."""
        twin = self.of(tensor)
        if twin is not None:
            try:
                view = self.view(tensor, twin)
                fill(view, torch.where(tensor != before, tensor.to(view.dtype), view))
            except (NotTwinnable, RuntimeError):
                self.forget(tensor)

    def allot(self, tensor: torch.Tensor, dtype: torch.dtype) -> Twin:
        """Return a new twin of the tensor's storage, without values yet; `dtype` is that of its halves."""
        narrow, wide = _sizes(tensor, dtype)
        size = tensor.untyped_storage().nbytes() // narrow * wide
        self._check(size)
        storage = torch.UntypedStorage(size, device=tensor.device)
        return self._keep(tensor, storage, dtype)

    def copy_of(self, tensor: torch.Tensor, dtype: torch.dtype) -> Twin:
        """Return a new twin of the tensor's whole storage with the run's values in `dtype`."""
        storage = tensor.untyped_storage()
        elements = storage.nbytes() // tensor.element_size()
        self._check(elements * _sizes(tensor, dtype)[1])
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (elements,), (1,))
        values = whole.to(dtype if tensor.dtype in HALVES else tensor.dtype, copy=True)
        return self._keep(tensor, values.untyped_storage(), values.dtype)

    def recast(self, tensor: torch.Tensor, twin: Twin, dtype: torch.dtype) -> Twin:
        """Return the twin with its halves in `dtype` from now on."""
        known = twin.narrow == tensor.element_size() and twin.dtype.is_floating_point
        if twin.dtype is dtype or not known or twin.verbatim is not None:
            return twin
        elements = twin.storage.nbytes() // twin.wide
        self._check(elements * dtype.itemsize)
        whole = torch.empty(0, dtype=twin.dtype, device=tensor.device)
        values = whole.set_(twin.storage, 0, (elements,), (1,)).to(dtype)
        return self._keep(tensor, values.untyped_storage(), dtype)

    def lend(self, tensor: torch.Tensor, source: torch.Tensor) -> bool:
        """Make the values of `source` (a twin, or a tensor of the run) the twin of `tensor` without a copy.

        Returns whether it could: they must lie in memory alike.
        """
        if source.shape != tensor.shape or not alike(source, tensor):
            return False
        if source.storage_offset() != 0 or tensor.storage_offset() != 0:
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
            Watch(of, self._dead.append, key),
            storage,
            dtype,
            *narrow_wide,
            borrowed,
            verbatim,
            None if verbatim is None else geometry(tensor),
            stream_of(tensor.device),
        )
        self._twins[key] = twin
        self._hold(storage, ours=not borrowed)
        return twin

    def _bury(self) -> None:
        """Drop the twins of storages that have died since."""
        with LOCK:
            while self._dead:
                watch = self._dead.pop()
                twin = self._twins.get(watch.key)
                # Else the address belongs to another storage by now.
                if twin is not None and twin.of is watch:
                    self._drop(watch.key)

    def _drop(self, key: int) -> None:
        twin = self._twins.pop(key, None)
        if twin is not None:
            self._release(twin.storage)

    def _hold(self, storage: Any, *, ours: bool) -> None:
        """Count memory of ours once, however many twins lie in it; what belongs to the run is not counted."""
        key = storage._cdata
        if key in self._held:
            self._held[key][0] += 1
        elif ours:
            self._held[key] = [1, storage.nbytes()]
            self._grow(storage.nbytes())

    def _release(self, storage: Any) -> None:
        held = self._held.get(storage._cdata)
        if held is not None:
            held[0] -= 1
            if not held[0]:
                self._held.pop(storage._cdata, None)
                self._grow(-held[1])

    def _check(self, size: int) -> None:
        if size > 0 and self.budget.used + size > self.budget.limit:
            raise torch.cuda.OutOfMemoryError(f"twins may take {self.budget.limit:.0f} bytes")

    def _grow(self, size: int) -> None:
        self._check(size)
        self.budget.used += size
        self.bytes += size
        self.most_bytes = max(self.most_bytes, self.bytes)

    def _fit(self, tensor: torch.Tensor, twin: Twin) -> None:
        """The run may have resized its storage without an operation that we saw."""
        needed = tensor.untyped_storage().nbytes() // twin.narrow * twin.wide
        if twin.storage.nbytes() < needed:
            if twin.borrowed:
                raise NotTwinnable("its memory was given back")
            held = self._held[twin.storage._cdata]
            self._grow(needed - held[1])
            held[1] = needed
            twin.storage.resize_(needed)


def _sizes(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[int, int]:
    """Return the bytes of an element of `tensor` and of its twin; only halves change their size."""
    size = tensor.element_size()
    return (size, dtype.itemsize) if tensor.dtype in HALVES else (size, size)
