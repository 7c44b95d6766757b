"""Finding the tensors in what a module takes and returns, and naming what they are."""

from __future__ import annotations

import contextlib
import inspect
from functools import cache
from itertools import islice
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_TENSORS = 16
"""Tensors taken from one module call; a cache of thousands of tensors is no activation."""

_MAX_DEPTH = 4


HALVES = frozenset({torch.float16, torch.bfloat16})
"""The dtypes meant by "half"."""


def tensors_in(value: Any, depth: int = _MAX_DEPTH) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested tuples, lists, mappings and dataclass-like objects.

    Only the type of an object is asked what it is, and only what it holds is looked at: the user's own attribute
    look-up, iteration or properties may do anything.
    """
    kind = type(value)
    if kind is tuple and len(value) == 1 and depth:  # the arguments of most modules
        value = value[0]
        kind = type(value)
        depth -= 1
    if issubclass(kind, torch.Tensor):
        yield value
        return
    items: Iterator[Any]
    if not depth:
        return
    if issubclass(kind, (tuple, list)):
        items = (tuple if issubclass(kind, tuple) else list).__iter__(value)
    elif issubclass(kind, dict):
        items = iter(dict.values(value))
    elif hasattr(kind, "__dataclass_fields__"):
        items = _fields(value, kind)
    else:
        return
    for item in islice(items, _MAX_TENSORS):
        yield from tensors_in(item, depth - 1)


def _fields(value: Any, kind: Any) -> Iterator[Any]:
    """Yield the fields of a dataclass that are set."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:  # it has slots alone
        held = {}
    for name in kind.__dataclass_fields__:
        slot = inspect.getattr_static(kind, name, None)
        if name in held:
            yield held[name]
        elif isinstance(slot, MemberDescriptorType):
            with contextlib.suppress(AttributeError):
                yield slot.__get__(value)


def autocast_dtype(device_type: str) -> str | None:
    """Return the autocast dtype in force for `device_type`, None where autocast is off."""
    # Torch knows no autocast for some devices (meta) and would raise.
    if not _knows_autocast(device_type) or not torch.is_autocast_enabled(device_type):
        return None
    return dtype_name(torch.get_autocast_dtype(device_type))


@cache
def _knows_autocast(device_type: str) -> bool:
    return bool(torch.amp.is_autocast_available(device_type))


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return the name without "torch."."""
    return str(dtype).removeprefix("torch.")


def version_of(tensor: torch.Tensor) -> int:
    """Return how many times the tensor was changed in place."""
    try:
        return tensor._version
    except RuntimeError:  # an inference tensor keeps no count; outside inference mode it can't be changed in place
        return 0
