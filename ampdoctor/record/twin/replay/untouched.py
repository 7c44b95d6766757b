"""Everything that executing modules once more may change, put back as it was, to the bit and to the object.

Put back are: parameters and buffers and their version counters, gradients, what the modules' attributes refer to and
what their plain containers hold, and the generators of random numbers. Objects of the user's own that modules refer
to, and variables outside modules, are out of reach.
"""

from __future__ import annotations

import copy
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from ampdoctor.record.headroom import fits
from ampdoctor.record.twin.replay.bits import same_bits
from ampdoctor.record.twin.replay.root_call import version_of
from ampdoctor.record.twin.replay.roots import modules_below
from ampdoctor.record.twin.replay.surroundings import Randomness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from torch import nn

_CONTAINERS = (list, dict, set, OrderedDict, defaultdict, Counter, deque)


class NoRoomError(Exception):
    """Memory does not suffice for a copy of the weights."""


class Untouched:
    """A context that leaves `roots`, and all in them, as they were.

    Raises:
        NoRoomError: on entry.
    """

    def __init__(self, roots: Iterable[nn.Module]) -> None:
        modules = {id(m): m for root in roots for m in modules_below(root)}
        self._modules = list(modules.values())

    def __enter__(self) -> None:
        self._randomness = Randomness.now()
        self._attributes = [(vars(m), dict(vars(m))) for m in self._modules]
        values = [v for _, held in self._attributes for v in held.values()]
        self._contents = [(v, copy.copy(v)) for v in values if type(v) in _CONTAINERS]
        inside = [
            v
            for container, _ in self._contents
            for v in (dict.values(container) if isinstance(container, dict) else container)
        ]
        tensors = {
            id(v): v
            for v in (*values, *inside)
            if isinstance(v, torch.Tensor) and v.grad_fn is None and not is_lazy(v)
        }
        if not fits(tensors.values()):
            raise NoRoomError("too little memory for a copy of the weights")
        self._gradients = [(t, t.grad) for t in tensors.values() if t.is_leaf]
        self._tensors = [(t, version_of(t), t.detach().clone()) for t in tensors.values()]
        self._restorers = [r for v in {id(v): v for v in values}.values() for r in _generator(v)]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for attributes, held in self._attributes:
            if not _same_items(attributes.items(), held.items()):
                attributes.clear()
                attributes.update(held)
        for container, content in self._contents:
            _refill(container, content)
        for tensor, version, values in self._tensors:
            _put_back(tensor, version, values)
        for tensor, gradient in self._gradients:
            if tensor.grad is not gradient:
                tensor.grad = gradient
        for restore in self._restorers:
            restore()
        self._randomness.put_back()
        self._tensors.clear()
        self._gradients.clear()
        self._attributes.clear()
        self._contents.clear()


def _put_back(tensor: torch.Tensor, version: int | None, values: torch.Tensor) -> None:
    # A version that has grown would be an error in a graph of the user's that has saved the tensor.
    if not same_bits(tensor, values):
        with torch.no_grad():
            tensor.data.copy_(values)
    if version is not None and version_of(tensor) != version:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def _refill(container: Any, content: Any) -> None:
    """Make `container` hold what its copy holds."""
    if isinstance(container, dict):
        if not _same_items(dict.items(container), dict.items(content)):
            dict.clear(container)
            dict.update(container, content)
    elif isinstance(container, set):
        if container != content:
            container.clear()
            container.update(content)
    elif not _same(container, content):
        container.clear()
        container.extend(content)


def _same_items(now: Iterable[tuple[Any, Any]], before: Iterable[tuple[Any, Any]]) -> bool:
    return _same([x for item in now for x in item], [x for item in before for x in item])


def _same(now: Any, before: Any) -> bool:
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))


def _generator(value: Any) -> Iterator[Callable[[], object]]:
    """Yield what puts back a generator of random numbers that a module holds."""
    kind = type(value)
    if issubclass(kind, torch.Generator):
        state = value.get_state()
        yield lambda: value.set_state(state)
    elif kind is random.Random:
        python = value.getstate()
        yield lambda: value.setstate(python)
    numpy = getattr(sys.modules.get("numpy"), "random", None)
    if numpy is None:
        return
    if issubclass(kind, numpy.RandomState):
        legacy = value.get_state()
        yield lambda: value.set_state(legacy)
    elif issubclass(kind, numpy.Generator):
        bits = value.bit_generator.state
        yield lambda: setattr(value.bit_generator, "state", bits)
