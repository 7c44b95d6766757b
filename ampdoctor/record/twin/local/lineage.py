"""Which operations' results went into an operation: also through views, selections and FP32, which have no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.local.natures import base_of, plain
from ampdoctor.record.twin.operations import Kind, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from ampdoctor.record.twin.operations import Operation

FROM_BEFORE = -1
"""What the step has not computed itself: a parameter, data, a constant."""

_MOST = 8
"""Origins that are kept of one tensor."""

_MAKES_NEW = frozenset({"lift_fresh", "detach_"})

_ADDS_TO_FIRST = frozenset({"addmm", "baddbmm", "addbmm", "addmv"})
"""Products whose first argument, a bias, is no factor."""


class Lineage:
    """Follows storages through one step: each holds what the last operation that wrote to it has made.

    Storages are known by their address. One that is freed and used anew is written to first, by an operation that
    comes by here.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[int, ...]] = {}
        self._widened: dict[int, torch.dtype] = {}

    def inputs(self, operation: Operation) -> tuple[int, ...]:
        """Return where the values come from that an operation is about to read."""
        base = base_of(operation.traits.name)
        if base in _MAKES_NEW:
            return (FROM_BEFORE,)
        traits = operation.traits
        args: Iterable[Any] = enumerate(operation.args)
        if base in _ADDS_TO_FIRST:
            args = ((n, a) for n, a in args if n)
        read = [a for n, a in args if not (traits.overwrites and n in traits.writes)]
        read += [a for name, a in operation.kwargs.items() if name not in traits.writes]
        found: dict[int, None] = {}
        for tensor in tensors_of(read):
            if plain(tensor) and tensor.is_floating_point():
                made = self._made.get(_address(tensor), (FROM_BEFORE,))
                found.update(dict.fromkeys(made))
        return tuple(found)[:_MOST]

    def made(self, operation: Operation, result: Any, origins: tuple[int, ...]) -> None:
        """Note what an operation has written."""
        narrow = _cast_from(operation)
        for tensor in (*tensors_of(result), *operation.written()):
            if plain(tensor):
                address = _address(tensor)
                self._made[address] = origins
                if narrow is not None:
                    self._widened[address] = narrow
                elif operation.traits.kind is not Kind.VIEW:
                    self._widened.pop(address, None)

    def known_as(self, tensor: torch.Tensor) -> torch.dtype:
        """Return the dtype that `tensor` was cast from just before; its own where it was not."""
        return self._widened.get(_address(tensor), tensor.dtype) if self._widened else tensor.dtype


def _cast_from(operation: Operation) -> torch.dtype | None:
    """Return the half dtype that the operation casts to a wider one; None where it does no such thing."""
    if base_of(operation.traits.name) != "_to_copy" or operation.args[0].dtype not in HALVES:
        return None
    wide = operation.kwargs.get("dtype")
    return operation.args[0].dtype if wide is not None and wide not in HALVES else None


def _address(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address
