"""Which code runs where an object is made, and the functions that are built in."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

from torch import nn

from ampdoctor.record.twin.replay.purity_arguments import ANY, Args
from ampdoctor.record.twin.replay.purity_attributes import Attributes, innermost, plain_function
from ampdoctor.record.twin.replay.purity_tables import (
    NEW_CONTAINERS,
    PURE_BUILTINS,
    SAME_ELEMENTS,
    UNCALLED,
    draws_globally,
    home,
    stateful,
)
from ampdoctor.record.twin.replay.purity_values import (
    CHECKED,
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
    lift,
    pair,
    sequence,
)

_AUTOGRAD = ("forward", "backward", "vjp", "setup_context")


class Making(Attributes):
    """What is seen of classes that are called."""

    def _make(  # noqa: C901, PLR0911 - one for each kind of class
        self, kind: type, args: Args, at: At, written: str
    ) -> Value:
        """Make an object."""
        if kind in {zip, enumerate} or kind in (*NEW_CONTAINERS, *SAME_ELEMENTS):
            return self._sequence(kind, args, at)
        if kind is type and len(args.values) != 1:
            raise at.effect("a class is made")
        if kind in PURE_BUILTINS or kind is type:
            return self._builtin(kind, args, at, written)
        if in_torch(kind.__module__):
            self.arguments(args, at)
            if stateful(kind) or kind.__name__ in {"set_grad_enabled", "inference_mode_"}:
                raise at.effect(f"`{written}` is called")
            return CHECKED if issubclass(kind, nn.Module) else MADE
        if kind.__module__ == "functools" and kind.__name__ == "partial":
            self.arguments(args, at)
            return CHECKED
        if kind.__module__ == "contextlib" and kind.__name__ == "nullcontext":
            return MADE
        if issubclass(kind, BaseException) and kind.__module__ == "builtins":
            return MADE
        return self._construct(kind, args, at, written)

    def _construct(self, kind: type, args: Args, at: At, written: str) -> Value:
        if type(kind).__module__ not in {"builtins", "abc"}:
            raise at.effect(f"`{written}` is made by a metaclass")
        new = New(kind)
        for name in ("__new__", "__init__"):
            found = self.static(kind, name)
            found = found.__func__ if isinstance(found, staticmethod) else found
            generated = getattr(getattr(found, "__code__", None), "co_filename", "").startswith("<")
            if isinstance(found, types.FunctionType) and not generated:
                self._call_function(found, new, args, at, f"{kind.__name__}.{name}")
            elif generated and not _is_generated(kind):
                raise at.effect(f"the source of `{kind.__name__}.{name}` can't be read")
            elif not generated and self.of_user(kind, name):
                raise at.effect(f"`{written}` is made by what can't be followed")
        if dataclasses.is_dataclass(kind):
            self._fields(kind, new, args, at)
        return frozenset({new})

    def of_user(self, kind: type, name: str) -> bool:
        """Whether what makes an object is neither Python's for plain objects and containers nor code."""
        base = next((b for b in kind.__mro__ if name in vars(b)), object)
        return not isinstance(vars(base).get(name), types.FunctionType | staticmethod) and (
            base not in (object, tuple, BaseException, Exception, *NEW_CONTAINERS)
        )

    def _fields(self, kind: Any, new: New, args: Args, at: At) -> None:
        self.arguments(args, at)
        for field in dataclasses.fields(kind):
            if field.default_factory is not dataclasses.MISSING:
                self.call(lift(field.default_factory, own=False), Args(), at, field.name)
            elif isinstance(self.static(kind, field.name), property):
                raise at.effect(f"`{kind.__name__}.{field.name}` is a property")
        setter = self.static(kind, "__setattr__")
        if isinstance(setter, types.FunctionType) and not setter.__code__.co_filename.startswith("<"):
            raise at.effect(f"`{kind.__name__}` sets attributes by code of its own")
        post = self.static(kind, "__post_init__")
        if post is not None:
            self.bound(post, new, at)

    def _apply(self, kind: type, args: Args, at: At) -> Value:
        """Run a function of autograd, and its backward pass later."""
        self.arguments(args, at)
        apart = not in_torch(home(plain_function(self.static(kind, "setup_context"))))
        for name in _AUTOGRAD:
            function = innermost(plain_function(self.static(kind, name)))
            if function is None or in_torch(home(function)):
                continue
            if not isinstance(function, types.FunctionType):
                raise at.effect(f"`{kind.__name__}.{name}` can't be followed")
            context = None if apart and name == "forward" else Plain.CONTEXT
            self.follow(function, context, ANY)
        return MADE

    # --- functions that are built in ---------------------------------------------------------------------

    def _builtin(self, obj: Any, args: Args, at: At, written: str) -> Value:
        if _is_in(obj, (sorted, reversed)):
            return self._sequence(obj, args, at)
        if _is_in(obj, PURE_BUILTINS):
            if not _is_in(obj, UNCALLED):
                self.arguments(args, at)
                for value in args.all():
                    self.operand(value, at)
                    self.truth(value, at)
            reads = obj in {min, max, functools.reduce} or obj is getattr
            return GIVEN if reads else FRESH if obj in {map, filter} else MADE
        if draws_globally(obj):
            return MADE
        if obj is next and args.values and all(map(_made_here, args.values[0])):
            return NOTHING.union(self.iterate(args.values[0], at), *args.values[1:])
        if issubclass(type(obj), types.BuiltinFunctionType) and in_torch(home(obj)) and not stateful(obj):
            self.arguments(args, at)
            return MADE
        raise at.effect(f"`{written}` is called")

    def _sequence(self, kind: Any, args: Args, at: At) -> Value:
        self.arguments(Args(named={k: v for k, v in args.named.items() if k == "key"}), at)
        if kind is zip:
            return sequence(pair(*(self.iterate(v, at) for v in args.values))) if args.exact else GIVEN
        if kind is enumerate and args.values:
            return sequence(pair(MADE, self.iterate(args.values[0], at)))
        for value in args.values:
            self._iterable(value, at)
        if kind in NEW_CONTAINERS:
            self.arguments(args, at) if kind.__name__ == "defaultdict" else None
            return FRESH
        return sequence(NOTHING.union(*(self.iterate(v, at) for v in args.values)))

    def _iterable(self, value: Value, at: At) -> None:
        callables = frozenset(a for a in value if not (isinstance(a, Known) and callable(a.obj)))
        self.iterate(callables, at)


def _made_here(atom: Any) -> bool:
    """Whether an iterator was made by the forward itself: nobody else sees that it is one further."""
    return atom in {Plain.MADE, Plain.FRESH} or isinstance(atom, Elements | Items)


def _is_generated(kind: type) -> bool:
    """Whether a class has its `__init__` from a dataclass, or its `__new__` from a named tuple."""
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return named or dataclasses.is_dataclass(kind)


def _is_in(obj: Any, several: Any) -> bool:
    return any(obj is one for one in several)


def harmless(obj: Any) -> bool:
    """Whether a class or a function that is built in may be called by anybody."""
    known = (*NEW_CONTAINERS, *SAME_ELEMENTS, zip, enumerate, type)
    return in_torch(home(obj)) or _is_in(obj, PURE_BUILTINS) or _is_in(obj, known)
