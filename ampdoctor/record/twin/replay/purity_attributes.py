"""What attributes are, of objects and of classes, without asking them."""

from __future__ import annotations

import sys
import types
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ampdoctor.record.twin.replay.purity_tables import home
from ampdoctor.record.twin.replay.purity_values import (
    GIVEN,
    MADE,
    NOTHING,
    Apply,
    At,
    Bound,
    Known,
    New,
    Plain,
    Super,
    Value,
    in_torch,
    lift,
)
from ampdoctor.record.twin.replay.reachable import attributes_of

if TYPE_CHECKING:
    from ampdoctor.record.twin.replay.purity_arguments import Args

_MISSING = object()


class Attributes(ABC):
    """What is seen of attributes.

    Attributes:
        stored: see there.
    """

    def __init__(self, stored: dict[str | int, Value]) -> None:
        self.stored = stored
        self._memo: dict[Any, Value] = {}
        self._modules: dict[int, Value] = {}

    # what the other side does
    @abstractmethod
    def constant(self, obj: Any, name: str, at: At) -> Value:
        """See `Run`."""

    @abstractmethod
    def iterate(self, value: Value, at: At) -> Value:
        """See `Run`."""

    @abstractmethod
    def operand(self, value: Value, at: At) -> None:
        """See `Run`."""

    @abstractmethod
    def truth(self, value: Value, at: At) -> None:
        """See `Run`."""

    @abstractmethod
    def call(self, function: Value, args: Args, at: At, written: str) -> Value:
        """See `Calls`."""

    @abstractmethod
    def bound(self, function: Any, receiver: Any, at: At) -> Value:
        """See `Calls`."""

    @abstractmethod
    def arguments(self, args: Args, at: At) -> None:
        """See `Calls`."""

    @abstractmethod
    def follow(self, function: types.FunctionType, receiver: Any, args: Args) -> Value:
        """See `Calls`."""

    @abstractmethod
    def _call_function(self, function: Any, receiver: Any, args: Args, at: At, written: str) -> Value:
        """See `Calls`."""

    # --- attributes ---------------------------------------------------------------------------------------

    def static(self, kind: type, name: str) -> Any:
        """Return an attribute of a class as it stands there; None where there is none."""
        for base in kind.__mro__:
            found = vars(base).get(name, _MISSING)
            if found is not _MISSING:
                return found
        return None

    def get_attribute(self, args: Args, name: Any, at: At) -> Value:
        """Follow `getattr`."""
        if not args.exact or not args.values:
            raise at.effect("`getattr` is called")
        if type(name) is not str:
            if args.values[0] <= MADE | GIVEN:
                return GIVEN
            raise at.effect("`getattr` is called with a name that is not written there")
        return NOTHING.union(self.attribute(args.values[0], name, at), *args.values[2:])

    def attribute(self, value: Value, name: str, at: At) -> Value:
        """Return what an attribute is."""
        return NOTHING.union(*(self._attribute(atom, name, at) for atom in value))

    def _attribute(self, atom: Any, name: str, at: At) -> Value:  # noqa: PLR0911 - one for each kind
        if isinstance(atom, Known):
            if issubclass(type(atom.obj), types.ModuleType):
                return self._of_package(atom.obj, name, at)
            if issubclass(type(atom.obj), type):
                return self._of_class(atom.obj, name, at)
            return self._of_object(atom, name, at)
        if isinstance(atom, New):
            stored = self.stored.get(name, NOTHING)
            found = self.static(atom.kind, name)
            field = found is None or name in getattr(atom.kind, "__dataclass_fields__", ())
            return stored | (GIVEN if field else self._found(found, atom, name, at))
        if isinstance(atom, Super):
            return self._of_super(atom, name, at)
        if atom is Plain.NONE:
            return NOTHING
        if name == "grad":
            raise at.effect("a gradient is read")
        return MADE if atom is Plain.MADE else GIVEN

    def _of_package(self, package: types.ModuleType, name: str, at: At) -> Value:
        held = vars(package)
        if name not in held:  # some packages load their parts when they are asked for
            part = sys.modules.get(f"{package.__name__}.{name}")
            if part is not None:
                return lift(part, own=False)
            raise at.effect(f"`{package.__name__}.{name}` is not found")
        return self.constant(held[name], f"{package.__name__}.{name}", at)

    def _of_class(self, kind: type, name: str, at: At) -> Value:
        found = self.static(kind, name)
        if name == "apply" and issubclass(kind, torch.autograd.Function):
            owner = next(b for b in kind.__mro__ if name in vars(b))
            if in_torch(owner.__module__):
                return frozenset({Apply(kind)})
        if found is None or isinstance(found, property):
            return MADE if name in {"__name__", "__qualname__", "__module__"} else GIVEN
        if isinstance(found, types.FunctionType):
            return frozenset({Known(found, own=False)})
        return self._found(found, Known(kind, own=False), name, at)

    def _of_super(self, atom: Super, name: str, at: At) -> Value:
        receiver = atom.receiver
        if not isinstance(receiver, Known | New):
            raise at.effect("what `super()` is can't be seen")
        kind = receiver.kind if isinstance(receiver, New) else type(receiver.obj)
        if isinstance(receiver, Known) and issubclass(type(receiver.obj), type):
            kind = receiver.obj
        mro = kind.__mro__
        for base in mro[mro.index(atom.after) + 1 :]:
            if name in vars(base):
                return self._found(vars(base)[name], receiver, name, at)
        return NOTHING

    def _of_object(self, atom: Known, name: str, at: At) -> Value:  # noqa: C901, PLR0911 - in the order of Python
        obj, kind = atom.obj, type(atom.obj)
        if name == "__class__":
            return lift(kind, own=False)
        if issubclass(type(obj), types.FunctionType | types.BuiltinFunctionType):
            return GIVEN
        getter = unwrapped(self.static(kind, "__getattribute__"))
        if isinstance(getter, types.FunctionType) and not in_torch(home(getter)):
            self.bound(getter, atom, at)
            return GIVEN
        stored = self.stored.get(name, NOTHING)
        found = self.static(kind, name)
        if isinstance(found, property | types.MemberDescriptorType) or hasattr(type(found), "__set__"):
            return stored | self._found(found, atom, name, at)
        for place in _places(obj):
            if name in place:
                return stored | lift(place[name], own=atom.own)
        if found is not None:
            return stored | self._found(found, atom, name, at)
        missing = unwrapped(self.static(kind, "__getattr__"))
        if isinstance(missing, types.FunctionType) and not in_torch(home(missing)):
            self.bound(missing, atom, at)
            return GIVEN
        return stored

    def _found(self, found: Any, receiver: Any, name: str, at: At) -> Value:
        """Return what an attribute of a class is to an object."""
        if isinstance(found, property):
            return NOTHING if found.fget is None else self._getter(found.fget, receiver, at)
        if isinstance(found, staticmethod):
            return lift(found.__func__, own=False)
        if isinstance(found, classmethod):
            kind = receiver.kind if isinstance(receiver, New) else receiver.obj
            kind = kind if isinstance(kind, type) else type(kind)
            return frozenset({Bound(found.__func__, Known(kind, own=False))})
        if isinstance(found, types.MemberDescriptorType):
            return self._slot(found, receiver)
        code = types.FunctionType | types.WrapperDescriptorType | types.MethodDescriptorType
        if isinstance(found, code):
            return frozenset({Bound(found, receiver)})
        if hasattr(type(found), "__get__") and not isinstance(found, types.BuiltinFunctionType):
            raise at.effect(f"what `{name}` is can't be seen")
        return self.constant(found, name, at)

    def _getter(self, getter: Any, receiver: Any, at: At) -> Value:
        if isinstance(getter, types.FunctionType) and in_torch(home(getter)):
            return MADE
        return self.bound(getter, receiver, at)

    def _slot(self, slot: types.MemberDescriptorType, receiver: Any) -> Value:
        if not isinstance(receiver, Known):
            return GIVEN
        try:
            return lift(slot.__get__(receiver.obj), own=receiver.own)
        except AttributeError:
            return NOTHING


def _places(obj: Any) -> list[dict[str, Any]]:
    held = attributes_of(obj) or {}
    if not issubclass(type(obj), nn.Module):
        return [held]
    return [held, *(held.get(name, {}) for name in ("_parameters", "_buffers", "_modules"))]


def unwrapped(function: Any) -> Any:
    """Return the function below wrappers of ours."""
    while isinstance(function, types.FunctionType) and home(function).startswith("ampdoctor."):
        inner = vars(function).get("__wrapped__")
        if inner is None:
            return function
        function = inner
    return function


def plain_function(found: Any) -> Any:
    """Return the function that a static method is of."""
    return unwrapped(found.__func__ if isinstance(found, staticmethod) else found)


def innermost(function: Any) -> Any:
    """Return the function below wrappers of torch's, as `once_differentiable` is one."""
    while isinstance(function, types.FunctionType) and "__wrapped__" in vars(function):
        if not in_torch(home(function)):
            break
        function = vars(function)["__wrapped__"]
    return function


def contents(cell: types.CellType) -> Any:
    """Return what a cell of a closure holds; None where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def module_tensors(module: nn.Module) -> list[torch.Tensor]:
    """Return the tensors that are registered with a module itself."""
    held = attributes_of(module) or {}
    both = (held.get("_parameters", {}), held.get("_buffers", {}))
    return [tensor for place in both for tensor in place.values() if tensor is not None]


def defaults(function: types.FunctionType) -> dict[str, Any]:
    """Return the defaults of parameters by name."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    given = names[len(names) - len(values) :]
    return {**dict(zip(given, values, strict=True)), **(function.__kwdefaults__ or {})}
