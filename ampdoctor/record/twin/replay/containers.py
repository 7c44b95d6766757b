"""Python's containers, with what puts their contents back.

Subclasses are read and written by the methods of Python's own class: those of the user's may do anything.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True)
class Container:
    """One container.

    Attributes:
        inside: what it holds.
        restore: puts that back; None where it can't change.
    """

    inside: list[Any]
    restore: Callable[[], None] | None = None


def container(value: Any, kind: type) -> Container | None:
    """Describe `value`, None where it is no container."""
    for base, describe in _KINDS:
        if issubclass(kind, base):
            return describe(value)
    return None


def _dict(value: Any, base: Any = dict) -> Container:
    held = list(base.items(value))
    flat = [x for item in held for x in item]

    def restore() -> None:
        if not _same([x for item in base.items(value) for x in item], flat):
            base.clear(value)
            for key, item in held:
                base.__setitem__(value, key, item)

    return Container(flat, restore)


def _ordered(value: Any) -> Container:
    return _dict(value, OrderedDict)


def _list(value: Any) -> Container:
    held = list(list.__iter__(value))

    def restore() -> None:
        if not _same(list(list.__iter__(value)), held):
            list.__setitem__(value, slice(None), held)

    return Container(held, restore)


def _deque(value: Any) -> Container:
    held = list(deque.__iter__(value))

    def restore() -> None:
        if not _same(list(deque.__iter__(value)), held):
            deque.clear(value)
            deque.extend(value, held)

    return Container(held, restore)


def _set(value: Any) -> Container:
    held = list(set.__iter__(value))
    ids = {id(item) for item in held}

    def restore() -> None:
        if {id(item) for item in set.__iter__(value)} != ids:
            set.clear(value)
            set.update(value, held)

    return Container(held, restore)


def _buffer(value: Any) -> Container:
    held = bytes(value)

    def restore() -> None:
        if bytes(value) != held:
            value[:] = type(value)(held) if isinstance(value, bytearray) else _array(value, held)

    return Container([], restore)


def _array(like: Any, held: bytes) -> Any:
    return array(like.typecode, held)


_KINDS: tuple[tuple[Any, Callable[[Any], Container]], ...] = (
    (OrderedDict, _ordered),
    (dict, _dict),
    (list, _list),
    (deque, _deque),
    (set, _set),
    (tuple, lambda value: Container(list(tuple.__iter__(value)))),
    (frozenset, lambda value: Container(list(frozenset.__iter__(value)))),
    (MappingProxyType, lambda value: Container(list(value.values()))),
    ((bytearray, array), _buffer),
)


def _same(now: Iterable[Any], before: list[Any]) -> bool:
    mine = list(now)
    return len(mine) == len(before) and all(a is b for a, b in zip(mine, before, strict=True))
