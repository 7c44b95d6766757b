"""What the graph of a loss keeps for its backward pass, read from its nodes just before that pass runs.

Hooks on saving (`saved_tensors_hooks`) would see it too, but only the innermost pair of them is asked, and a result
that its own node keeps would never be freed. So nothing is hooked, and the nodes are asked what they hold.
"""

from __future__ import annotations

import contextlib
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from ampdoctor.record.autograd_graph import nodes
from ampdoctor.record.ledger.storages import storage_of
from ampdoctor.record.tensors import tensors_in

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

_PREFIX = "_raw_saved_"

_CHECKPOINT = torch.utils.checkpoint.__name__


def saved_tensors(roots: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield what the nodes keep, views and parameters included; of what was packed (offloaded) what the pack holds, of
    a checkpointed region what it is computed again from."""
    seen: set[int] = set()
    for node in nodes(roots):
        kind: Any = type(node)
        for name in _names(kind):
            for saved in _each(_of(node, name)):
                yield from _held(saved, seen)
        if isinstance(node, torch._C._FunctionBase):
            # A user's function may hang tensors on its `ctx`, which is this node.
            yield from tensors_in(object.__getattribute__(node, "__dict__"))


def kept_bytes(roots: Iterable[torch.Tensor], besides: Iterable[torch.Tensor]) -> int:
    """Return the bytes that the graphs of `roots` keep, each storage once, without those of `besides`: the weights."""
    known = {key for t in besides if (key := _storage(t)) is not None}
    sizes: dict[tuple[str, int], int] = {}
    for tensor in saved_tensors(roots):
        key = _storage(tensor)
        if key is not None and key not in known:
            sizes[key] = tensor.untyped_storage().nbytes()
    return sum(sizes.values())


def _storage(tensor: torch.Tensor) -> tuple[str, int] | None:
    """Return what tells the tensor's storage from others; None where it has none of its own."""
    storage = storage_of(tensor)
    return None if storage is None else (str(tensor.device), storage._cdata)


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    """Return the attributes of a node that hold what it saved: looking for them takes longer than to read them."""
    return tuple(name for name in dir(kind) if name.startswith(_PREFIX))


def _of(node: Any, name: str) -> Any:
    try:
        return getattr(node, name, None)
    except RuntimeError:  # a user's function whose graph was freed by a pass before
        return None


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _held(saved: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the tensors in one `SavedTensor`, without unpacking: that would run the user's hooks, or compute anew.

    `seen` are the checkpointed regions that were met before: each of the tensors it has not kept leads to its inputs.
    """
    try:
        if hasattr(saved, "data"):
            yield from tensors_in(saved.data)
            yield from _region(getattr(saved, "unpack_hook", None), seen)
        elif saved is not None and getattr(saved, "unpack_hook", None) is None:
            yield from tensors_in(saved.unpack())
    except RuntimeError:  # freed by a pass before
        return


def _region(hook: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the inputs of a checkpointed region and the state of the random numbers: what it is computed again from
    hangs on the closure of the hook that does it."""
    if type(hook) is not FunctionType or hook.__module__ != _CHECKPOINT:
        return
    for frame in _closure(hook):
        if type(frame) is FunctionType:
            yield from _region(frame, seen)
        elif type(frame).__module__ == _CHECKPOINT and id(frame) not in seen:
            seen.add(id(frame))
            for value in _closure(getattr(frame, "recompute_fn", None)):
                yield from tensors_in(value)
            saver = getattr(frame, "input_saver", None)  # of older versions of torch a node of its own holds them
            kept = getattr(frame, "saved_args", None) or getattr(saver, "grad_fn", None)
            for saved in _each(getattr(kept, "_raw_saved_tensors", kept)):
                yield from _held(saved, seen) if hasattr(saved, "unpack") else ()


def _closure(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # not filled yet
            yield cell.cell_contents
