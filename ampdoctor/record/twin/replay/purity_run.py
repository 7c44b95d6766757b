"""What attributes are, and what calls do, while a forward is read."""

from __future__ import annotations

import ast
import functools
import types
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ampdoctor.record.twin.replay.purity_arguments import Args
from ampdoctor.record.twin.replay.purity_calls import Calls
from ampdoctor.record.twin.replay.purity_parts import BY_NAME, has_own, parts, runs_code
from ampdoctor.record.twin.replay.purity_tables import (
    CONTAINERS,
    METHODS_OF_CONTEXT,
    METHODS_OF_FRESH,
    METHODS_OF_GIVEN,
    METHODS_OF_MADE,
    READING,
    TENSOR,
    draws_globally,
)
from ampdoctor.record.twin.replay.purity_values import (
    FRESH,
    GIVEN,
    MADE,
    NOTHING,
    At,
    Elements,
    Items,
    Known,
    New,
    Plain,
    Value,
    in_torch,
    is_atom,
    lift,
    pair,
    sequence,
)
from ampdoctor.record.twin.replay.reachable import attributes_of

if TYPE_CHECKING:
    from ampdoctor.record.twin.replay.purity_body import Body

_METHODS = {
    Plain.GIVEN: METHODS_OF_GIVEN,
    Plain.MADE: METHODS_OF_MADE,
    Plain.CHECKED: METHODS_OF_MADE,
    Plain.FRESH: METHODS_OF_FRESH,
    Plain.CONTEXT: METHODS_OF_CONTEXT,
}
_MOST_ELEMENTS = 4096


class Run(Calls):
    """One reading: the objects' side of it.

    Attributes:
        stored: what the forward stores in attributes, by name, and in containers, by id: what they hold at another
            time than now.
    """

    # --- objects --------------------------------------------------------------------------------------

    def constant(self, obj: Any, name: str, at: At) -> Value:
        """Return a global or a variable of an enclosing function, if it can't have changed."""
        code = types.FunctionType | types.BuiltinFunctionType | types.ModuleType | type
        if obj is None or is_atom(obj) or issubclass(type(obj), code) or draws_globally(obj):
            return lift(obj, own=False)
        generic = type(obj).__module__ == "typing" or issubclass(type(obj), types.GenericAlias)
        if generic or type(obj) in {functools.partial, type(functools.lru_cache(int))}:
            return lift(obj, own=False)
        raise at.effect(f"the global `{name}` (a {type(obj).__name__}) is read")

    def change(self, atom: Known, at: At, name: str) -> None:
        """Note that an item of a container changes."""
        kind = type(atom.obj)
        if kind not in CONTAINERS or not atom.own:
            raise at.effect(f"`{name}` (a {kind.__name__}) is changed")
        self.store(id(atom.obj), GIVEN)

    def store(self, key: str | int, value: Value) -> None:
        """Note what an attribute or container holds from now on."""
        self.stored[key] = self.stored.get(key, NOTHING) | value

    def operand(self, value: Value, at: At) -> None:
        """Refuse objects of which an operator may run code of the user's."""
        for atom in value:
            if isinstance(atom, New) or (isinstance(atom, Known) and runs_code(atom.obj)):
                kind = atom.kind if isinstance(atom, New) else type(atom.obj)
                raise at.effect(f"an operator is applied to a {kind.__name__}")

    def truth(self, value: Value, at: At) -> None:
        """Ask an object whether it is true."""
        for atom in value:
            if isinstance(atom, Known):
                for name in ("__bool__", "__len__"):
                    found = self.static(type(atom.obj), name)
                    if isinstance(found, types.FunctionType):
                        self.bound(found, atom, at)

    # --- elements -------------------------------------------------------------------------------------

    def iterate(self, value: Value, at: At) -> Value:
        """Return what the elements are."""
        result = NOTHING
        for atom in value:
            if isinstance(atom, Elements):
                result |= atom.inside
            elif isinstance(atom, Items):
                result |= NOTHING.union(*atom.items)
            elif isinstance(atom, Known):
                held = self._held(atom, at)
                result |= held
            elif atom is Plain.MADE:
                result |= MADE
            elif atom is not Plain.NONE:
                result |= GIVEN
        return result

    def _held(self, atom: Known, at: At) -> Value:
        """Return what a container that exists already holds, when iterated over."""
        held = parts(atom.obj)
        if held is None:
            if issubclass(type(atom.obj), type):
                return GIVEN  # members of an enum, or nothing
            if hasattr(type(atom.obj), "grad_fn") or issubclass(type(atom.obj), range):
                return MADE
            raise at.effect(f"a {type(atom.obj).__name__} is iterated over")
        if issubclass(type(atom.obj), (dict, *BY_NAME)):
            return MADE
        return self._each(atom, held.values())

    def _each(self, atom: Known, held: Any) -> Value:
        result = self.stored.get(id(atom.obj), NOTHING)
        if len(held) > _MOST_ELEMENTS:
            return GIVEN
        for part in held:
            result |= lift(part, own=atom.own)
        return result

    def subscript(self, value: Value, index: Any, at: At) -> Value:
        """Return `value[index]`; `index` is a constant or a tree."""
        result = NOTHING
        for atom in value:
            if isinstance(atom, Known):
                result |= self._item(atom, index, at)
            elif isinstance(atom, Items | Elements):
                inside = self.iterate(frozenset({atom}), at)
                if isinstance(atom, Items) and type(index) is int and -len(atom.items) <= index < len(atom.items):
                    result |= atom.items[index]
                else:
                    result |= sequence(inside) if isinstance(index, ast.Slice) else inside
            elif atom is Plain.MADE:
                result |= MADE
            elif atom is not Plain.NONE:
                result |= GIVEN
        return result

    def _item(self, atom: Known, index: Any, at: At) -> Value:
        held = parts(atom.obj)
        if held is None:
            found = self.static(type(atom.obj), "__getitem__")
            if isinstance(found, types.FunctionType):
                return self.bound(found, atom, at)
            if issubclass(type(atom.obj), type) or type(atom.obj).__module__ == "typing":
                return GIVEN
            raise at.effect(f"an item of a {type(atom.obj).__name__} is read")
        if isinstance(index, ast.Slice):
            return sequence(self._each(atom, held.values()))
        factory = getattr(atom.obj, "default_factory", None) if type(atom.obj) is defaultdict else None
        if factory is not None:
            self.store(id(atom.obj), self.call(lift(factory, own=False), Args(), at, "a default"))
        constant = not isinstance(index, ast.AST)
        if constant and type(index) is int and index < 0 and not issubclass(type(atom.obj), dict):
            index += len(held)
        if constant and index in held and id(atom.obj) not in self.stored:
            return lift(held[index], own=atom.own)
        return self._each(atom, held.values())

    # --- methods --------------------------------------------------------------------------------------

    def method(self, base: Value, name: str, args: Args, at: At, written: str) -> Value:
        """Call a method."""
        result = NOTHING
        for atom in base:
            if atom is Plain.NONE:
                continue
            if isinstance(atom, Elements | Items):
                atom = Plain.GIVEN  # noqa: PLW2901 - a tuple: its methods read
            if isinstance(atom, Plain):
                result |= self._plain_method(atom, name, args, at, written)
            elif isinstance(atom, Known) and parts(atom.obj) is not None and not has_own(atom.obj, name):
                result |= self._container_method(atom, name, args, at, written)
            else:
                found = self.attribute(frozenset({atom}), name, at)
                result |= self.call(found, args, at, written)
        return result

    def _plain_method(self, atom: Plain, name: str, args: Args, at: At, written: str) -> Value:
        if name not in _METHODS[atom]:
            raise at.effect(f"`{written}` is called on {atom.value}")
        self.arguments(args, at)
        if atom is Plain.FRESH and name not in METHODS_OF_MADE:
            return GIVEN | frozenset({Plain.NONE})
        if name == "copy" and atom is Plain.FRESH:
            return FRESH
        return MADE if name in TENSOR - READING or atom is Plain.MADE else GIVEN

    def _container_method(self, atom: Known, name: str, args: Args, at: At, written: str) -> Value:
        held = parts(atom.obj) or {}
        self.arguments(args, at)
        if name in {"keys", "index", "count"}:
            return MADE
        inside = self._each(atom, held.values())
        if name == "items":
            return sequence(pair(MADE, inside))
        if name in {"values", "get"}:
            default = NOTHING.union(*args.values[1:])
            return sequence(inside) if name == "values" else inside | default
        if name == "copy":
            return FRESH
        if name not in METHODS_OF_FRESH - TENSOR and name not in {"add", "sort"}:
            raise at.effect(f"`{written}` is called on a {type(atom.obj).__name__}")
        self.change(atom, at, written.rpartition(".")[0])
        return GIVEN

    # --- attributes that are set ------------------------------------------------------------------------

    def set_attribute(self, base: Value, name: str, value: Value, at: At, written: str) -> None:
        """Set an attribute, where that is put back."""
        for atom in base:
            if atom in {Plain.NONE, Plain.CONTEXT}:
                continue
            if isinstance(atom, New):
                self._settable(atom.kind, name, at, written)
                self.store(name, value)
                continue
            module = isinstance(atom, Known) and atom.own and issubclass(type(atom.obj), nn.Module)
            if not module:
                raise at.effect(f"the attribute `{written}` is assigned")
            self._settable(type(atom.obj), name, at, written)
            held = (attributes_of(atom.obj) or {}).get(name)
            registered = any(name in attributes_of(atom.obj)[k] for k in ("_modules",))  # type: ignore[index]
            plain = lift(held, own=True) <= MADE | {Plain.NONE} or type(held) in (*CONTAINERS, tuple)
            if registered or not plain:
                raise at.effect(f"the attribute `{written}` (a {type(held).__name__}) is assigned")
            self.store(name, value)

    def _settable(self, kind: type, name: str, at: At, written: str) -> None:
        setter = self.static(kind, "__setattr__")
        found = self.static(kind, name)
        slot = isinstance(found, types.MemberDescriptorType)
        own = isinstance(setter, types.FunctionType) and not in_torch(setter.__globals__.get("__name__"))
        if own or (hasattr(type(found), "__set__") and not slot):
            raise at.effect(f"the attribute `{written}` is assigned by code of the user's")

    def context(self, body: Body, node: ast.expr) -> Value:
        """Enter a context of torch's."""
        if isinstance(node, ast.Call):
            function = body.value(node.func)
            if function == frozenset({Known(torch.set_grad_enabled, own=False)}):
                body.args(node)
                return GIVEN
        value = body.value(node)
        if not value <= MADE | {Plain.NONE, Plain.CHECKED}:
            at = body.at(node)
            raise at.effect(f"`{ast.unparse(node)}` is a context that is not torch's")
        return GIVEN
