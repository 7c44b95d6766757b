"""Which operations' results went into an operation: also through views, selections and FP32, which have no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.record.twin.local.natures import base_of, plain
from ampdoctor.record.twin.operations import tensors_of

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
        for tensor in (*tensors_of(result), *operation.written()):
            if plain(tensor):
                self._made[_address(tensor)] = origins


def _address(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address
