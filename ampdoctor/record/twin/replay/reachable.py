"""The plain Python state that modules reach, and what puts it back.

Followed are attributes of modules and of plain objects, slots, containers, closures and what methods are bound to, and
the attributes of the user's own classes. Only types are asked what they are: no code of the user's runs.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ampdoctor.record.twin.replay.containers import container
from ampdoctor.record.twin.replay.generators import generator
from ampdoctor.record.twin.replay.kinds_of_state import (
    is_stateless,
    of_user,
    parts_of_callable,
    slots_of,
    what_is_unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MOST_OBJECTS = 200_000
_MOST_ITEMS = 5_000_000

_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, type, torch.dtype, torch.device, torch.Size})
"""Met most often, and nothing to look at."""


class Reachable:
    """All that is reachable from `roots` when it is made.

    Attributes:
        restorers: put back what was found; each may be called whatever became of the others.
        tensors: tensors that an operation may write to, by id.
        fault: what can't be put back, None where everything can.
    """

    def __init__(self, roots: Iterable[nn.Module]) -> None:
        self.restorers: list[Callable[[], object]] = []
        self.tensors: dict[int, torch.Tensor] = {}
        self.fault: str | None = None
        self._seen: dict[int, Any] = {}
        self._classes: dict[int, type] = {}
        self._stack: list[tuple[Any, str]] = []
        self._items = 0
        self._strict = True
        self._push(roots, "")
        self._follow()
        # What classes hold is shared by all and hardly ever changed: put back where that can be done.
        self._strict = False
        for kind in self._classes.values():
            self._class(kind)
        self._follow()
        self._seen.clear()
        self._classes.clear()

    def _follow(self) -> None:
        while self._stack and self.fault is None:
            value, where = self._stack.pop()
            self._visit(value, where)

    def _push(self, values: Iterable[Any], where: str) -> None:
        for value in values:
            self._items += 1
            if type(value) not in _ATOMS:
                self._stack.append((value, where))
        if self._items > _MOST_ITEMS or len(self._seen) > _MOST_OBJECTS:
            self.fault = "the modules hold too many objects of Python's to put them back"

    def _visit(self, value: Any, where: str) -> None:
        kind = type(value)
        if id(value) in self._seen or is_stateless(kind):
            return
        self._seen[id(value)] = value
        parts = parts_of_callable(value, kind)
        if parts is not None:
            self._callable(value, parts, where)
        elif (restore := generator(value, kind)) is not None:
            self.restorers.append(restore)
        elif self._contents(value, kind, where):
            self._attributes(value, kind, where)

    def _contents(self, value: Any, kind: type, where: str) -> bool:
        """Take what is not an attribute of `value`; returns whether the rest is attributes."""
        if issubclass(kind, torch.Tensor):
            if value.grad_fn is None and not is_lazy(value):
                self.tensors[id(value)] = value
            return True
        found = container(value, kind)
        if found is not None:
            self._push(found.inside, where)
            if found.restore is not None:
                self.restorers.append(found.restore)
            return True
        unknown = what_is_unknown(value, kind)
        if unknown is not None and self._strict:
            self.fault = f"{where} holds {unknown}, which can't be put back as it was"
        return unknown is None

    def _attributes(self, value: Any, kind: type, where: str) -> None:
        own = attributes_of(value)
        if own is not None:
            held = dict(own)
            self.restorers.append(lambda: _refill(own, held))
            of_module = issubclass(kind, nn.Module)
            for name, item in held.items():
                self._push((item,), f"{kind.__name__}.{name}" if of_module else where)
        for slot in slots_of(kind):
            before = _slot(slot, value)
            self.restorers.append(lambda slot=slot, before=before: _put_slot(slot, value, before))  # type: ignore[misc]
            if before is not _UNSET:
                self._push((before,), where)
        for base in kind.__mro__:
            if of_user(base):
                self._classes[id(base)] = base

    def _callable(self, value: Any, parts: Iterable[Any], where: str) -> None:
        self._push(parts, where)
        if isinstance(value, types.FunctionType):
            for cell in value.__closure__ or ():
                before = _contents(cell)
                if before is not _UNSET:
                    self._push((before,), where)
                self.restorers.append(lambda cell=cell, before=before: _put_cell(cell, before))  # type: ignore[misc]

    def _class(self, kind: type) -> None:
        held = _plain_attributes(kind)
        self.restorers.append(lambda: _put_class(kind, held))
        self._push(held.values(), kind.__name__)


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object; None where it has no place for any."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if type(held) is dict else None


def same(now: Iterable[Any], before: Iterable[Any]) -> bool:
    """Whether both are the same objects in the same order."""
    mine, theirs = list(now), list(before)
    return len(mine) == len(theirs) and all(a is b for a, b in zip(mine, theirs, strict=True))


_UNSET = object()


def _refill(attributes: dict[str, Any], held: dict[str, Any]) -> None:
    if not (same(attributes, held) and same(attributes.values(), held.values())):
        attributes.clear()
        attributes.update(held)


def _slot(slot: types.MemberDescriptorType, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:
        return _UNSET


def _put_slot(slot: types.MemberDescriptorType, value: Any, before: Any) -> None:
    if _slot(slot, value) is before:
        return
    if before is _UNSET:
        slot.__delete__(value)
    else:
        slot.__set__(value, before)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _UNSET


def _put_cell(cell: types.CellType, before: Any) -> None:
    if _contents(cell) is before:
        return
    if before is _UNSET:
        del cell.cell_contents
    else:
        cell.cell_contents = before


def _plain_attributes(kind: type) -> dict[str, Any]:
    """Return the attributes of a class that are no code and no machinery of Python's."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith(("__", "_abc_")) and not hasattr(type(value), "__get__")
    }


def _put_class(kind: type, held: dict[str, Any]) -> None:
    now = _plain_attributes(kind)
    for name in now.keys() - held.keys():
        type.__delattr__(kind, name)
    for name, value in held.items():
        if name not in now or now[name] is not value:
            type.__setattr__(kind, name, value)
