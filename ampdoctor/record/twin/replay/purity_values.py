"""What the reading of a forward knows of a value."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import torch


class EffectError(Exception):
    """Something has an effect, or can't be seen to have none; the message says what, and where."""


@dataclass(frozen=True)
class At:
    """A place in the source, for messages."""

    file: str
    line: int

    def effect(self, what: str) -> EffectError:
        """Return the error that tells of `what`, here."""
        return EffectError(f"{what} ({self.file}:{self.line})")


class Plain(enum.Enum):
    """Values of which no more is known than where they come from.

    Attributes:
        GIVEN: handed in, or anything else: the least that can be known.
        MADE: made by torch or by arithmetic; a number, a string, a tensor, tuples of them.
        NONE: None. What is called or read on it fails, and so has no effect.
        FRESH: a container made by the forward itself, which nobody else holds.
        CHECKED: a callable that has been looked at already.
        CONTEXT: the `ctx` of an autograd function.
    """

    GIVEN = "what was handed in"
    MADE = "a value"
    NONE = "None"
    FRESH = "a new container"
    CHECKED = "a function"
    CONTEXT = "ctx"


class Known:
    """An object that exists already.

    Attributes:
        own: whether it was reached through attributes of a module, so that what changes in it is put back.
    """

    __slots__ = ("obj", "own")

    def __init__(self, obj: Any, *, own: bool) -> None:
        self.obj, self.own = obj, own

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and other.obj is self.obj and other.own is self.own

    def __hash__(self) -> int:
        return hash((id(self.obj), self.own))


@dataclass(frozen=True)
class Elements:
    """A sequence, not to be changed, of which each element is one of these."""

    inside: frozenset[Any]


@dataclass(frozen=True)
class Items:
    """A tuple, element by element."""

    items: tuple[frozenset[Any], ...]


@dataclass(frozen=True)
class New:
    """An object of a class of the user's that the forward itself has made."""

    kind: type


@dataclass(frozen=True)
class Bound:
    """A function and its first argument."""

    function: Any
    receiver: Any


@dataclass(frozen=True)
class Super:
    """What `super()` returns."""

    after: type
    receiver: Any


@dataclass(frozen=True)
class Apply:
    """`apply` of a function of autograd."""

    kind: type


Value = frozenset[Any]
"""Every possible one; empty where no value can come to be, since getting there fails."""

GIVEN: Value = frozenset({Plain.GIVEN})
MADE: Value = frozenset({Plain.MADE})
FRESH: Value = frozenset({Plain.FRESH})
CHECKED: Value = frozenset({Plain.CHECKED})
NOTHING: Value = frozenset()

_ATOMS = (
    int, float, complex, str, bytes, bool, enum.Enum, torch.dtype, torch.device, torch.Size, torch.layout,
    torch.memory_format, type(Ellipsis), type(NotImplemented), range, slice,
)  # fmt: skip


def is_atom(obj: Any) -> bool:
    """Whether `obj` is a constant: it never changes."""
    kind = type(obj)
    if issubclass(kind, (tuple, frozenset)):
        inside = tuple.__iter__(obj) if issubclass(kind, tuple) else frozenset.__iter__(obj)
        return all(item is None or is_atom(item) for item in inside)
    return issubclass(kind, _ATOMS)


def lift(obj: Any, *, own: bool) -> Value:
    """Return what is known of an object."""
    if obj is None:
        return frozenset({Plain.NONE})
    kind = type(obj)
    if is_atom(obj) or (issubclass(kind, torch.Tensor) and in_torch(kind.__module__)):
        return MADE
    return frozenset({Known(obj, own=own)})


def sequence(inside: Value) -> Value:
    """Return a sequence of elements like these; loops that nest ever more of them come to an end."""
    return frozenset({Elements(inside)}) if _depth(inside) < 4 else GIVEN


def pair(*items: Value) -> Value:
    """Return a tuple of these."""
    deep = len(items) > 64 or any(_depth(item) >= 4 for item in items)
    return GIVEN if deep else frozenset({Items(items)})


def _depth(value: Value) -> int:
    deepest = 0
    for atom in value:
        if isinstance(atom, Elements):
            deepest = max(deepest, 1 + _depth(atom.inside))
        elif isinstance(atom, Items):
            deepest = max(deepest, 1 + max((_depth(item) for item in atom.items), default=0))
    return deepest


def in_torch(module: object) -> bool:
    """Whether a module of this name is torch's; those of einops are as good."""
    return isinstance(module, str) and module.partition(".")[0] in {"torch", "einops"}
