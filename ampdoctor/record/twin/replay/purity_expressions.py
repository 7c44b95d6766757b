"""The expressions of one function, followed with what is known of each value."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ampdoctor.record.twin.replay.purity_arguments import ANY, Args, parameters
from ampdoctor.record.twin.replay.purity_values import (
    CHECKED,
    FRESH,
    GIVEN,
    MADE,
    NOTHING,
    At,
    Known,
    Plain,
    Super,
    Value,
    lift,
    pair,
    sequence,
)

if TYPE_CHECKING:
    import types

    from ampdoctor.record.twin.replay.purity_code import Function
    from ampdoctor.record.twin.replay.purity_run import Run

_GETTING: Value = frozenset({Known(getattr, own=False), Known(hasattr, own=False)})


class Expressions(ABC):
    """A function that is being followed.

    Args:
        run: what is known of objects and calls.
        function: whose globals and closure names are looked up in.
        receiver: what `super()` is about.
        outer: the function that this one is defined in, where it is followed along with it.
    """

    def __init__(self, run: Run, function: types.FunctionType, receiver: Any, outer: Expressions | None = None) -> None:
        self.run, self.function, self.receiver, self.outer = run, function, receiver, outer
        self.file = function.__code__.co_filename.rpartition("/")[2]
        self.env: dict[str, Value] = {}
        self.ever: dict[str, Value] = {}
        self.returned = NOTHING
        self._inner: list[Any] = []
        self._left: list[dict[str, Value]] = []  # where `break` and `continue` leave a loop's body

    def at(self, node: ast.AST) -> At:
        """Return the place of `node`."""
        return At(self.file, getattr(node, "lineno", self.function.__code__.co_firstlineno))

    def bind(self, name: str, value: Value) -> None:
        """Give `name` a value."""
        self.env[name] = value
        self.ever[name] = self.ever.get(name, NOTHING) | value

    @abstractmethod
    def assign(self, target: ast.expr, value: Value) -> None:
        """See `Body`."""

    @abstractmethod
    def follow(self, node: Function, values: dict[str, Value]) -> Value:
        """See `Body`."""

    # --- expressions --------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """Follow an expression."""
        evaluate = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        if evaluate is None:
            raise self.at(node).effect(f"`{ast.unparse(node)}` is not followed")
        value: Value = evaluate(node)
        return value

    def _test(self, node: ast.expr) -> None:
        self.run.truth(self.value(node), self.at(node))

    def _of_constant(self, node: ast.Constant) -> Value:
        return frozenset({Plain.NONE}) if node.value is None else MADE

    def _of_name(self, node: ast.Name) -> Value:
        return self._name(node.id, node)

    def _name(self, name: str, node: ast.AST) -> Value:
        body: Expressions | None = self
        while body is not None:
            if name in body.env:
                return body.env[name]
            body = body.outer
        code = self.function.__code__
        if name in code.co_freevars:
            cell = (self.function.__closure__ or ())[code.co_freevars.index(name)]
            return self.run.constant(cell.cell_contents, name, self.at(node))
        if name in code.co_varnames or name in code.co_cellvars:
            return NOTHING  # not bound yet: it would fail
        held = self.function.__globals__
        if name in held:
            return self.run.constant(held[name], name, self.at(node))
        if name in vars(builtins):
            return lift(vars(builtins)[name], own=False)
        raise self.at(node).effect(f"`{name}` is not found")

    def _of_attribute(self, node: ast.Attribute) -> Value:
        self._not_mangled(node)
        return self.run.attribute(self.value(node.value), node.attr, self.at(node))

    def _not_mangled(self, node: ast.Attribute) -> None:
        if node.attr.startswith("__") and not node.attr.endswith("__"):
            raise self.at(node).effect(f"`{node.attr}` is a private name")

    def _of_subscript(self, node: ast.Subscript) -> Value:
        self.value(node.slice)
        index = node.slice.value if isinstance(node.slice, ast.Constant) else node.slice
        return self.run.subscript(self.value(node.value), index, self.at(node))

    def _of_slice(self, node: ast.Slice) -> Value:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.value(part)
        return MADE

    def _of_tuple(self, node: ast.Tuple) -> Value:
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return sequence(NOTHING.union(*map(self.value, node.elts)))
        return pair(*map(self.value, node.elts))

    def _of_starred(self, node: ast.Starred) -> Value:
        return self.run.iterate(self.value(node.value), self.at(node))

    def _of_list(self, node: ast.List | ast.Set) -> Value:
        for item in node.elts:
            self.value(item)
        return FRESH

    _of_set = _of_list

    def _of_dict(self, node: ast.Dict) -> Value:
        for item in [*node.keys, *node.values]:
            if item is not None:
                self.value(item)
        return FRESH

    def _of_binop(self, node: ast.BinOp) -> Value:
        both = self.value(node.left) | self.value(node.right)
        self.run.operand(both, self.at(node))
        if Plain.FRESH in both:
            return FRESH | MADE
        return GIVEN if both == GIVEN or not both <= (MADE | GIVEN) else MADE

    def _of_unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        self.run.operand(value, self.at(node))
        return MADE

    def _of_compare(self, node: ast.Compare) -> Value:
        values = [self.value(x) for x in (node.left, *node.comparators)]
        if not all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            self.run.operand(NOTHING.union(*values), self.at(node))
        return MADE

    def _of_boolop(self, node: ast.BoolOp) -> Value:
        values = [self.value(x) for x in node.values]
        for value in values:
            self.run.truth(value, self.at(node))
        return NOTHING.union(*values)

    def _of_ifexp(self, node: ast.IfExp) -> Value:
        self._test(node.test)
        return self.value(node.body) | self.value(node.orelse)

    def _of_namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.assign(node.target, value)
        return value

    def _of_joinedstr(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.run.operand(self.value(part.value), self.at(node))
        return MADE

    def _of_lambda(self, node: ast.Lambda) -> Value:
        return self._inner_function(node)

    def _of_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        self._comprehension(node.generators, [node.elt])
        return FRESH

    _of_setcomp = _of_listcomp

    def _of_generatorexp(self, node: ast.GeneratorExp) -> Value:
        self._inner.append(lambda: self._of_listcomp(node))
        return self._of_listcomp(node)

    def _of_dictcomp(self, node: ast.DictComp) -> Value:
        self._comprehension(node.generators, [node.key, node.value])
        return FRESH

    def _comprehension(self, generators: list[ast.comprehension], results: list[ast.expr]) -> None:
        before = dict(self.env)
        for generator in generators:
            inside = self.run.iterate(self.value(generator.iter), self.at(generator.iter))
            self.assign(generator.target, inside)
            for condition in generator.ifs:
                self._test(condition)
        for result in results:
            self.value(result)
        self.env = before

    def _of_call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.keywords:
            return self._super(node)
        args = self.args(node)
        at, written = self.at(node), ast.unparse(node.func)
        if isinstance(node.func, ast.Attribute):
            self._not_mangled(node.func)
            base = self.value(node.func.value)
            return self.run.method(base, node.func.attr, args, at, written)
        constant = node.args[1] if len(node.args) > 1 else None
        function = self.value(node.func)
        if function & _GETTING:
            name = constant.value if isinstance(constant, ast.Constant) else None
            got = self.run.get_attribute(args, name, at)
            return got if Known(getattr, own=False) in function else MADE
        return self.run.call(function, args, at, written)

    def args(self, node: ast.Call) -> Args:
        """Follow the arguments of a call."""
        values = [self.value(arg) for arg in node.args]
        named = {k.arg or "**": self.value(k.value) for k in node.keywords}
        starred = any(isinstance(arg, ast.Starred) for arg in node.args) or "**" in named
        return Args(values, named, exact=not starred)

    def _super(self, node: ast.Call) -> Value:
        code = self.function.__code__
        if self.receiver is None or "__class__" not in code.co_freevars or len(node.args) == 1:
            raise self.at(node).effect("what `super()` is can't be seen")
        cell = (self.function.__closure__ or ())[code.co_freevars.index("__class__")]
        after = cell.cell_contents
        if node.args and self.value(node.args[0]) != frozenset({Known(after, own=False)}):
            raise self.at(node).effect("what `super()` is can't be seen")
        return frozenset({Super(after, self.receiver)})

    def _inner_function(self, node: Function) -> Value:
        """Follow a function that is defined inside: whoever calls it, and with whatever."""
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            self.value(default)

        def follow() -> None:
            inner = type(self)(self.run, self.function, self.receiver, self)
            inner.follow(node, parameters(node, None, ANY, {}))

        follow()
        self._inner.append(follow)
        return CHECKED
