"""Casts to FP8, and half numbers that are sent to other ranks: what they take from tensors fitted in by a scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.headroom import fits
from ampdoctor.record.roundings.marks import Mark, Marks
from ampdoctor.record.roundings.rows import RoundingRows
from ampdoctor.record.roundings.scaled import Beyond, beyond_float8, clamped_to, lost_in, overflowed
from ampdoctor.record.tensors import HALVES, dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampdoctor.record.roundings.rows import Totals
    from ampdoctor.record.twin.operations import Operation

_MOST_KEPT = 32
"""Tensors kept that were just cast to half, for the case that they are sent to other ranks."""

_MOST_BYTES_KEPT = 1 << 28
"""Memory that these tensors hold at most."""


class NarrowCasts:
    """What a follower of roundings does about narrow formats.

    Attributes:
        operations: operations seen.
        narrow: it has met casts to FP8, or half numbers sent to other ranks, which change from step to step.
        rows: where it adds what it sees.
    """

    def __init__(self) -> None:
        self.operations = 0
        self.narrow = False
        self.rows = RoundingRows()
        self._marks = Marks()
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def _clamped(self, operation: Operation, source: torch.Tensor) -> Callable[[Any], None] | None:
        """Clamping to the largest number of an FP8 format comes before a cast to it, and hides what it takes."""
        numbers = [*operation.args[1:], *operation.kwargs.values()]
        dtype = next((d for n in numbers if (d := clamped_to(n)) is not None), None)
        if dtype is None or not source.is_floating_point():
            return None
        earlier = self._marks.of(source).clamped  # clamp_min, then clamp_max
        taken = earlier if earlier is not None else beyond_float8(source, dtype)
        return lambda result: self._marks.put(result, Mark(clamped=taken))

    def _narrowed(
        self, operation: Operation, source: torch.Tensor, result: torch.Tensor, clamped: Beyond | None
    ) -> None:
        self.narrow = True
        over = clamped if clamped is not None else beyond_float8(source, result.dtype)
        dtypes = dtype_name(source.dtype), dtype_name(result.dtype)
        totals = self._at("float8", operation, dtypes)
        if totals is not None:
            self.rows.scaled(totals, source.numel(), lost_in(source, result, over))

    def _keep(self, source: torch.Tensor, result: torch.Tensor) -> None:
        """Casts of parameters and activations are for computing; gradients need no gradients themselves."""
        if source.requires_grad or source.dtype is not torch.float32 or source.shape != result.shape:
            return
        if _bytes((source, result)) > _MOST_BYTES_KEPT or not fits((source, result)):
            return
        self._kept = [*self._kept[1 - _MOST_KEPT :], (source, result)]
        while sum(map(_bytes, self._kept)) > _MOST_BYTES_KEPT:
            self._kept.pop(0)

    def _sent(self, operation: Operation, tensors: Sequence[torch.Tensor]) -> None:
        """Half numbers go to other ranks: compare them with what they were cast from."""
        for tensor in tensors:
            if tensor.dtype not in HALVES:
                continue
            self.narrow = True
            place = tensor.untyped_storage()._cdata
            pairs = [p for p in self._kept if p[1].untyped_storage()._cdata == place]
            self._kept = [p for p in self._kept if all(p is not q for q in pairs)]
            for source, sent in pairs[-1:]:
                dtypes = dtype_name(source.dtype), dtype_name(sent.dtype)
                totals = self._at("sent", operation, dtypes)
                if totals is not None:
                    lost = lost_in(source, sent, overflowed(source, sent))
                    self.rows.scaled(totals, source.numel(), lost)

    def _at(self, kind: str, operation: Operation, dtypes: tuple[str, str]) -> Totals | None:
        name = operation.traits.name
        return self.rows.at(self.operations, kind, operation.place.module, name, dtypes)


def _bytes(pair: tuple[torch.Tensor, torch.Tensor]) -> int:
    return sum(t.untyped_storage().nbytes() for t in pair)
