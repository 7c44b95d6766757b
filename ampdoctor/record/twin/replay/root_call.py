"""One call of a root module: what it was given, and what came back to its outputs in the backward passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.tensors import tensors_in
from ampdoctor.record.twin.replay.bits import checksum, same_bits, sample
from ampdoctor.record.twin.replay.tensor_places import Kept, Lies

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from ampdoctor.record.callsite import CallSite
    from ampdoctor.record.twin.replay.arrived import Cast, Wide
    from ampdoctor.record.twin.replay.roots import Root
    from ampdoctor.record.twin.replay.surroundings import Autocast, Randomness

_MOST_ITEMS = 1000
_MAX_DEPTH = 8


@dataclass(eq=False)
class Output:
    """One output that gradients may come back to.

    Attributes:
        index: which of the tensors in the call's result.
        dtype: its dtype.
        bits: some of its elements.
        checksum: of all of them, where that can be had and the elements kept are not all.
        place: where it lies in memory.
        gradients: what arrived at it, by backward pass.
        wide: the same before it was cast to half, where the consumer of the output is a cast.
        open: the step is still under way.
    """

    index: int
    dtype: torch.dtype
    bits: torch.Tensor
    checksum: torch.Tensor | None
    place: Lies
    gradients: dict[int, Kept | Cast] = field(default_factory=dict)
    wide: dict[int, Wide] = field(default_factory=dict)
    open: bool = True

    @classmethod
    def of(cls, index: int, tensor: torch.Tensor) -> Output:
        """Describe a tensor that a call has just returned."""
        return cls(index, tensor.dtype, sample(tensor), checksum(tensor), Lies.of(tensor))

    def came_out_again(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` is the same, as far as was looked at. Waits for the device."""
        if not same_bits(sample(tensor), self.bits):
            return False
        if self.checksum is None or self.place[1:4] != Lies.of(tensor)[1:4]:
            return True
        again = checksum(tensor)
        return again is not None and torch.equal(again, self.checksum)

    def close(self) -> None:
        """The step is over; its graph, which may live on, must not keep anything."""
        self.open = False
        self.gradients.clear()
        self.wide.clear()


@dataclass(eq=False)
class RootCall:
    """One call.

    Attributes:
        root: the module and what is known of it.
        args: positional arguments, tensors by reference.
        kwargs: named arguments.
        inputs: the tensors in both.
        links: inputs that an earlier call of the step has made, by id: that call and which of its outputs.
        randomness: states of the generators before it.
        autocast: autocast around it.
        weights: versions of some weights.
        moving: values of the buffers that it has changed, before it did.
        source: the user's line.
        outputs: those that gradients may come back to.
        fault: why it can't be executed again.
        by_hooks: it is seen through the module hooks of an examined step.
    """

    root: Root
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: list[Kept]
    links: dict[int, tuple[RootCall, Output]]
    randomness: Randomness
    autocast: Autocast
    weights: list[int]
    moving: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]]
    source: CallSite
    outputs: list[Output] = field(default_factory=list)
    fault: str | None = None
    by_hooks: bool = False

    def stale(self) -> str | None:
        """Return why it would not come out the same now, None where nothing speaks against it."""
        if self.fault is not None:
            return self.fault
        if self.root.module() is None:
            return "the module is gone"
        if self.root.weight_versions() != self.weights:
            return "the weights have changed since"
        if not all(kept.unchanged for kept in self.inputs):
            return "an input has been changed in place since"
        return None


class Inputs:
    """Takes the arguments of a call into keeping.

    Containers are copied, tensors are kept by reference, and those with a history of their own without it.
    """

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.fault: str | None = None

    @property
    def devices(self) -> frozenset[torch.device]:
        """Where they are."""
        return frozenset(tensor.device for tensor, _ in self.kept)

    def keep(self, value: Any, depth: int = _MAX_DEPTH) -> Any:
        """Return `value` as it is to be handed in again."""
        kind = type(value)
        if issubclass(kind, torch.Tensor):
            return self._tensor(value)
        if not depth or (kind in {list, tuple, dict} and len(value) > _MOST_ITEMS):
            self._opaque(value)
            return value
        if kind in {list, tuple}:
            return kind([self.keep(item, depth - 1) for item in value])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return tuple.__new__(kind, [self.keep(item, depth - 1) for item in tuple(value)])
        if kind is dict:
            return {key: self.keep(item, depth - 1) for key, item in value.items()}
        self._opaque(value)
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        kept = tensor
        if tensor.grad_fn is not None:
            kept = tensor.detach().requires_grad_()  # version and storage are shared
        self.kept.append(Kept.of(kept))
        return kept

    def _opaque(self, value: Any) -> None:
        """Something is handed in as it is; the tensors that it is known to hold are watched."""
        if hasattr(type(value), "__next__"):
            self.fault = "an argument is an iterator, which gives what it holds only once"
        self.kept += [Kept.of(tensor) for tensor in tensors_in(value)]


def handed_in(value: Any, replace: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return kept arguments, containers copied anew, with `replace` done to each tensor."""
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        return replace(value)
    if kind in {list, tuple} and len(value) <= _MOST_ITEMS:
        return kind([handed_in(item, replace) for item in value])
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple.__new__(kind, [handed_in(item, replace) for item in tuple(value)])
    if kind is dict:
        return {key: handed_in(item, replace) for key, item in value.items()}
    return value


def outputs_of(result: Any) -> list[torch.Tensor]:
    """Return the tensors in what a module has returned, in order, each once."""
    return list({id(t): t for t in islice(tensors_in(result), _MOST_ITEMS)}.values())


def takes_gradients(tensor: torch.Tensor) -> bool:
    """Whether a gradient can come back to an output, and be looked at."""
    return (
        tensor.grad_fn is not None
        and tensor.layout is torch.strided
        and tensor.is_floating_point()
        and tensor.device.type != "meta"
    )
