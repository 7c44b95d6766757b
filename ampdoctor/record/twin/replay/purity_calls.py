"""Which code a call runs, and whether that has an effect."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch import nn

from ampdoctor.record.twin.replay.purity_arguments import ANY, Args, parameters
from ampdoctor.record.twin.replay.purity_attributes import contents, defaults, module_tensors, unwrapped
from ampdoctor.record.twin.replay.purity_body import Body
from ampdoctor.record.twin.replay.purity_code import function_of
from ampdoctor.record.twin.replay.purity_making import Making, harmless
from ampdoctor.record.twin.replay.purity_tables import CALLING, METHODS_OF_MODULES, draws_globally, home, stateful
from ampdoctor.record.twin.replay.purity_values import (
    CHECKED,
    GIVEN,
    MADE,
    NOTHING,
    Apply,
    At,
    Bound,
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
from ampdoctor.record.twin.replay.reachable import attributes_of

_OPTIONS = frozenset({"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"})
_NOT_CALLED = frozenset({"__init__", "extra_repr", "reset_parameters", "_reset_parameters", "__repr__", "__doc__"})


def told(obj: Any) -> str:
    """Return the name of a callable, or of its class, without asking it."""
    code = types.FunctionType | types.MethodType | types.BuiltinFunctionType | type
    return str(obj.__name__) if issubclass(type(obj), code) else type(obj).__name__


class Calls(Making):
    """The side of calls; that of objects is `Run`."""

    # --- calls ----------------------------------------------------------------------------------------

    def call(self, function: Value, args: Args, at: At, written: str) -> Value:
        """Call whatever `function` may be."""
        result = NOTHING
        for atom in function:
            if atom is Plain.NONE:
                continue
            if atom is Plain.CHECKED:
                self.arguments(args, at)
                result |= GIVEN
            elif isinstance(atom, Bound):
                result |= self._call_bound(atom, args, at, written)
            elif isinstance(atom, Apply):
                result |= self._apply(atom.kind, args, at)
            elif isinstance(atom, Known):
                result |= self._call_known(atom, args, at, written)
            else:
                raise at.effect(f"what `{written}` calls can't be known")
        return result

    def arguments(self, args: Args, at: At) -> None:
        """Let a callee call any argument that can be called."""
        for atom in NOTHING.union(*args.all()):
            self._argument(atom, at)

    def _argument(self, atom: Any, at: At) -> None:
        if isinstance(atom, Elements | Items):
            for inside in self.iterate(frozenset({atom}), at):
                self._argument(inside, at)
        elif isinstance(atom, Bound | Apply):
            self.call(frozenset({atom}), ANY, at, "an argument")
        elif isinstance(atom, Known):
            obj = atom.obj
            if issubclass(type(obj), torch.Generator) and not atom.own:
                raise at.effect("a generator is drawn from that is not the module's own")
            if issubclass(type(obj), torch.Tensor):
                raise at.effect(f"a {type(obj).__name__} may run code of its own")
            quiet = issubclass(type(obj), type | types.BuiltinFunctionType)
            if callable(obj) and not (quiet and harmless(obj)):
                self.call(frozenset({atom}), ANY, at, told(obj))

    def _call_known(  # noqa: PLR0911 - one for each kind of thing
        self, atom: Known, args: Args, at: At, written: str
    ) -> Value:
        obj = atom.obj
        if issubclass(type(obj), nn.Module):
            self.arguments(args, at)
            return self.module(obj, at)
        if issubclass(type(obj), types.MethodType) and not draws_globally(obj):
            receiver = Known(obj.__self__, own=atom.own)
            return self._call_bound(Bound(obj.__func__, receiver), args, at, written)
        if issubclass(type(obj), functools.partial):
            inner = lift(obj.func, own=atom.own)
            held = Args([lift(x, own=atom.own) for x in obj.args])
            self.arguments(held, at)
            self.arguments(args, at)
            return self.call(inner, ANY, at, written)
        if issubclass(type(obj), type):
            return self._make(obj, args, at, written)
        if issubclass(type(obj), types.FunctionType):
            return self._call_function(obj, None, args, at, written)
        found = self.static(type(obj), "__call__")
        if isinstance(found, types.FunctionType) and not in_torch(home(found)):
            return self._call_function(found, atom, args, at, written)
        return self._builtin(obj, args, at, written)

    def _call_bound(self, atom: Bound, args: Args, at: At, written: str) -> Value:
        function, receiver = unwrapped(atom.function), atom.receiver
        if not isinstance(function, types.FunctionType):
            name = getattr(function, "__name__", "")
            if name in {"__init__", "__getattribute__", "__new__", "__init_subclass__"}:
                return GIVEN
            raise at.effect(f"`{written}` is called")
        if in_torch(home(function)) and "__wrapped__" not in vars(function):
            name = function.__name__
            new = isinstance(receiver, New)
            module = isinstance(receiver, Known) and issubclass(type(receiver.obj), nn.Module | type)
            if not (new or module) or name not in METHODS_OF_MODULES or (name == "__init__" and not new):
                raise at.effect(f"`{written}` is called")
            self.arguments(args, at)
            if function.__name__ in {"forward", "__call__"}:
                return MADE
            return self._of_modules(function.__name__, receiver)
        return self._call_function(function, receiver, args, at, written)

    def _of_modules(self, name: str, receiver: Any) -> Value:
        """Return what a method of torch's modules returns."""
        if name in {"parameters", "buffers", "get_parameter", "get_buffer"}:
            return MADE
        if not isinstance(receiver, Known) or name not in {"children", "values", "items"}:
            return GIVEN
        held = (attributes_of(receiver.obj) or {}).get("_modules", {})
        inside = NOTHING.union(*(lift(m, own=receiver.own) for m in held.values()))
        return sequence(pair(MADE, inside)) if name == "items" else sequence(inside)

    def _call_function(self, function: Any, receiver: Any, args: Args, at: At, written: str) -> Value:
        function = unwrapped(function)
        where = home(function)
        if in_torch(where) or where == "contextlib":
            inner = vars(function).get("__wrapped__")
            if inner is not None:
                return self._call_function(inner, receiver, args, at, written)
            method = "." in function.__qualname__.rpartition("<locals>.")[2]
            method = method and function.__name__ not in METHODS_OF_MODULES
            if where == "contextlib" or stateful(function) or method:
                raise at.effect(f"`{written}` is called")
            if function.__module__ == "torch.utils.checkpoint" and function.__name__ == "checkpoint":
                return self._checkpoint(args, at)
            self.arguments(args, at)
            for cell in function.__closure__ or ():
                self._argument(Known(contents(cell), own=False), at)
            return CHECKED if function.__name__ in CALLING else MADE
        if draws_globally(function):
            return MADE
        return self.follow(function, receiver, args)

    def _checkpoint(self, args: Args, at: At) -> Value:
        """Call the first argument with the others; they are what a helper that is given a layer needs."""
        options = {k: v for k, v in args.named.items() if k in _OPTIONS}
        self.arguments(Args(named=options), at)
        named = {k: v for k, v in args.named.items() if k not in _OPTIONS}
        if not args.exact or not args.values:
            self.arguments(args, at)
            return GIVEN
        return self.call(args.values[0], Args(args.values[1:], named), at, "checkpoint")

    def follow(self, function: types.FunctionType, receiver: Any, args: Args) -> Value:
        """Follow a function of the user's."""
        node = function_of(function.__code__)
        held = defaults(function)
        values = parameters(node, receiver, args, held)
        key = (id(function), receiver, tuple(sorted(values.items(), key=lambda item: item[0])))
        if key not in self._memo:
            self._memo[key] = GIVEN  # what a recursion returns
            self._memo[key] = Body(self, function, receiver).follow(node, values)  # type: ignore[arg-type]
        return self._memo[key]

    def bound(self, function: Any, receiver: Any, at: At) -> Value:
        """Call a function with nothing but its first argument."""
        return self._call_bound(Bound(function, receiver), Args(), at, getattr(function, "__name__", "?"))

    # --- modules and classes ----------------------------------------------------------------------------

    def module(self, module: nn.Module, at: At) -> Value:
        """Call a module with whatever."""
        if id(module) not in self._modules:
            self._modules[id(module)] = GIVEN
            self._modules[id(module)] = self._module(module, at)
        return self._modules[id(module)]

    def _module(self, module: nn.Module, at: At) -> Value:
        kind, atom = type(module), Known(module, own=True)
        self._tensors(module, at)
        if isinstance(module, torch.fx.GraphModule | torch.jit.ScriptModule):
            raise at.effect(f"the source of `{kind.__name__}` can't be read")
        held = attributes_of(module) or {}
        if in_torch(kind.__module__) and "forward" not in held:
            for value in list(held.values()):
                if not isinstance(value, nn.Module | torch.Tensor | torch.Generator):
                    self._argument(Known(value, own=True), at)
            return MADE
        self._overridden(kind, atom, at)
        for name in ("__call__", "_call_impl", "_wrapped_call_impl"):
            found = held.get(name) or unwrapped(self.static(kind, name))
            if not (isinstance(found, types.FunctionType) and in_torch(home(found))):
                return self.call(self._attribute(atom, name, at), ANY, at, f"{kind.__name__}.{name}")
        return self.call(self._attribute(atom, "forward", at), ANY, at, f"{kind.__name__}.forward")

    def _tensors(self, module: nn.Module, at: At) -> None:
        for tensor in module_tensors(module):
            if not in_torch(type(tensor).__module__):
                raise at.effect(f"a {type(tensor).__name__} may run code of its own")

    def _overridden(self, kind: type, atom: Known, at: At) -> None:
        """Call what a forward of torch's may call of the user's class: methods in the place of torch's own."""
        torchs = {n for b in kind.__mro__ if in_torch(b.__module__) for n in vars(b)}
        for base in kind.__mro__:
            if in_torch(base.__module__) or base is object:
                continue
            for name in torchs.intersection(vars(base)) - _NOT_CALLED - vars(nn.Module).keys():
                found = vars(base)[name]
                code = (types.FunctionType, property, classmethod, staticmethod)
                if isinstance(found, code):
                    value = self._found(found, atom, name, at)
                    self.call(frozenset(a for a in value if isinstance(a, Bound)), ANY, at, name)
