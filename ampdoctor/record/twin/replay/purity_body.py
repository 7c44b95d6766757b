"""The statements and expressions of one function, followed with what is known of each value."""

from __future__ import annotations

import ast
import builtins
import re
import types
from typing import TYPE_CHECKING, Any

from ampdoctor.record.twin.replay.purity_values import (
    CHECKED,
    FRESH,
    GIVEN,
    MADE,
    NOTHING,
    At,
    EffectError,
    Elements,
    Items,
    Known,
    New,
    Plain,
    Super,
    Value,
    is_atom,
    lift,
    pair,
    sequence,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.record.twin.replay.purity_code import Function
    from ampdoctor.record.twin.replay.purity_run import Run

_TENSOR = re.compile(r"(typing\.)?(Optional\[)?(torch\.)?Tensor\]?( ?\| ?None)?")
_PASSES = 6


class Args:
    """Arguments of a call; not `exact` where some come from `*` or `**`, or are anybody's."""

    def __init__(
        self, values: Iterable[Value] = (), named: dict[str, Value] | None = None, *, exact: bool = True
    ) -> None:
        self.values, self.named, self.exact = list(values), named or {}, exact

    def all(self) -> list[Value]:
        """Return them all."""
        return [*self.values, *self.named.values()]


ANY = Args(exact=False)


class Body:
    """A function that is being followed.

    Args:
        run: what is known of objects and calls.
        function: whose globals and closure names are looked up in.
        receiver: what `super()` is about.
        outer: the function that this one is defined in, where it is followed along with it.
    """

    def __init__(
        self, run: Run, function: types.FunctionType, receiver: Any, outer: Body | None = None
    ) -> None:
        self.run, self.function, self.receiver, self.outer = run, function, receiver, outer
        self.file = function.__code__.co_filename.rpartition("/")[2]
        self.env: dict[str, Value] = {}
        self.ever: dict[str, Value] = {}
        self.returned = NOTHING
        self._inner: list[Any] = []

    def follow(self, node: Function, values: dict[str, Value]) -> Value:
        """Follow the body of `node` with parameters of these values; returns what it returns."""
        for name, value in values.items():
            self.bind(name, value)
        if isinstance(node, ast.Lambda):
            self.returned = self.value(node.body)
        else:
            self.block(node.body)
        self.late()
        return self.returned or frozenset({Plain.NONE})

    def late(self) -> None:
        """Follow inner functions once more: they see what names are bound to when they are called."""
        env, self.env = self.env, self.ever
        for inner in list(self._inner):
            inner()
        self.env = env

    def at(self, node: ast.AST) -> At:
        """Return the place of `node`."""
        return At(self.file, getattr(node, "lineno", self.function.__code__.co_firstlineno))

    def bind(self, name: str, value: Value) -> None:
        """Give `name` a value."""
        self.env[name] = value
        self.ever[name] = self.ever.get(name, NOTHING) | value

    # --- statements ---------------------------------------------------------------------------------

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Follow statements."""
        for statement in statements:
            follow = getattr(self, f"_do_{type(statement).__name__.lower()}", None)
            if follow is None:
                what = type(statement).__name__.lower()
                raise self.at(statement).effect(f"`{what}` is a statement that is not followed")
            follow(statement)

    def _do_pass(self, node: ast.Pass | ast.Break | ast.Continue) -> None:
        pass

    _do_break = _do_continue = _do_pass

    def _do_global(self, node: ast.Global) -> None:
        raise self.at(node).effect("a global is assigned")

    def _do_nonlocal(self, node: ast.Nonlocal) -> None:
        raise self.at(node).effect("a variable of an enclosing function is assigned")

    def _do_expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def _do_return(self, node: ast.Return) -> None:
        value = frozenset({Plain.NONE}) if node.value is None else self.value(node.value)
        self.returned |= value

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value))

    def _do_augassign(self, node: ast.AugAssign) -> None:
        value = self.value(node.value)
        if isinstance(node.target, ast.Name):
            before = self._name(node.target.id, node)
            self.run.operand(before | value, self.at(node))
            changed = Plain.GIVEN in before and Plain.FRESH in value
            if changed:
                raise self.at(node).effect(f"`{node.target.id}`, which was handed in, is extended")
            for atom in before:
                if isinstance(atom, Known):
                    self.run.change(atom, self.at(node), node.target.id)
            self.assign(node.target, before if before & FRESH else before | MADE)
            return
        before = self.value(_as_load(node.target))
        self.run.operand(before | value, self.at(node))
        for atom in before:
            if isinstance(atom, Known):
                self.run.change(atom, self.at(node), ast.unparse(node.target))
        if Plain.GIVEN in before and Plain.FRESH in value:
            raise self.at(node).effect(f"`{ast.unparse(node.target)}` is extended")
        self.assign(node.target, before | MADE)

    def _do_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript) and self.value(target.value) <= FRESH:
                continue
            if not isinstance(target, ast.Name):
                raise self.at(node).effect(f"`{ast.unparse(target)}` is deleted")

    def _do_if(self, node: ast.If) -> None:
        self._test(node.test)
        self._either([node.body, node.orelse])

    def _either(self, blocks: Iterable[list[ast.stmt]]) -> None:
        before, after = self.env, []
        for block in blocks:
            self.env = dict(before)
            self.block(block)
            after.append(self.env)
        self.env = _joined(after)

    def _loop(self, body: list[ast.stmt], begin: Any) -> None:
        for _ in range(_PASSES):
            before = dict(self.env)
            begin()
            self.block(body)
            self.env = _joined([before, self.env])
            if self.env == before:
                return
        raise EffectError(f"a loop is too tangled to be followed ({self.file}:{body[0].lineno})")

    def _do_for(self, node: ast.For) -> None:
        inside = self.run.iterate(self.value(node.iter), self.at(node))
        self._loop(node.body, lambda: self.assign(node.target, inside))
        self.block(node.orelse)

    def _do_while(self, node: ast.While) -> None:
        self._loop(node.body, lambda: self._test(node.test))
        self.block(node.orelse)

    def _do_with(self, node: ast.With) -> None:
        for item in node.items:
            value = self.run.context(self, item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value)
        self.block(node.body)

    def _do_try(self, node: ast.Try) -> None:
        before = dict(self.env)
        self.block(node.body)
        # An exception comes from anywhere in the body: names may have any value they ever had.
        self.env = _joined([before, self.env, {n: self.ever[n] for n in self.env if n in self.ever}])
        for handler in node.handlers:
            if handler.type is not None:
                self.value(handler.type)
            if handler.name:
                self.bind(handler.name, MADE)
        self._either([[], node.orelse, *(handler.body for handler in node.handlers)])
        self.block(node.finalbody)

    def _do_raise(self, node: ast.Raise) -> None:
        for value in (node.exc, node.cause):
            if value is not None:
                self.value(value)

    def _do_assert(self, node: ast.Assert) -> None:
        self._test(node.test)
        if node.msg is not None:
            self.value(node.msg)

    def _do_functiondef(self, node: ast.FunctionDef) -> None:
        if node.decorator_list:
            raise self.at(node).effect(f"`{node.name}` is decorated inside a function")
        self.bind(node.name, CHECKED)
        self._inner_function(node)

    def _inner_function(self, node: Function) -> Value:
        """Follow a function that is defined inside: whoever calls it, and with whatever."""
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            self.value(default)

        def follow() -> None:
            inner = Body(self.run, self.function, self.receiver, self)
            inner.follow(node, parameters(node, None, ANY, {}))

        follow()
        self._inner.append(follow)
        return CHECKED

    # --- targets ------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Value) -> None:
        """Give `target` a value."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value, self.at(target))
        elif isinstance(target, ast.Starred):
            self.assign(target.value, GIVEN)
        elif isinstance(target, ast.Attribute):
            base = self.value(target.value)
            self.run.set_attribute(base, target.attr, value, self.at(target), ast.unparse(target))
        elif isinstance(target, ast.Subscript):
            self.value(target.slice)
            self._put(target, self.value(target.value))
        else:
            raise self.at(target).effect("what is assigned is not followed")

    def _unpack(self, targets: list[ast.expr], value: Value, at: At) -> None:
        exact = all(isinstance(a, Items) and len(a.items) == len(targets) for a in value)
        starred = any(isinstance(t, ast.Starred) for t in targets)
        for number, target in enumerate(targets):
            if exact and not starred:
                self.assign(target, NOTHING.union(*(a.items[number] for a in value)))
            else:
                self.assign(target, self.run.iterate(value, at))

    def _put(self, target: ast.Subscript, base: Value) -> None:
        """Allow `base[...] = ...`: of tensors that an input holds, it shows in their versions, of a list it would not.

        What was handed in is taken for a tensor only where the subscript would fit no list and no dict.
        """
        for atom in base:
            if isinstance(atom, Known):
                self.run.change(atom, self.at(target), ast.unparse(target.value))
            elif atom is Plain.GIVEN and not _only_for_tensors(target.slice):
                what = ast.unparse(target)
                raise self.at(target).effect(f"`{what}` of what was handed in is assigned")
            elif isinstance(atom, New):
                raise self.at(target).effect(f"`{ast.unparse(target)}` is assigned")

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
        body: Body | None = self
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
        return self.run.attribute(self.value(node.value), node.attr, self.at(node))

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
            base = self.value(node.func.value)
            return self.run.method(base, node.func.attr, args, at, written)
        constant = node.args[1] if len(node.args) > 1 else None
        function = self.value(node.func)
        if Known(getattr, own=False) in function:
            name = constant.value if isinstance(constant, ast.Constant) else None
            return self.run.get_attribute(args, name, at)
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


def parameters(
    node: Function, receiver: Any, args: Args, defaults: dict[str, Any]
) -> dict[str, Value]:
    """Return what the parameters of `node` are in a call."""
    names = [a.arg for a in [*node.args.posonlyargs, *node.args.args]]
    found: dict[str, Value] = {}
    values = [*([] if receiver is None else [frozenset({receiver})]), *args.values]
    for number, name in enumerate(names):
        if number == 0 and receiver is not None:
            found[name] = frozenset({receiver})
        elif args.exact and number < len(values):
            found[name] = values[number]
        else:
            found[name] = _named(name, args, defaults)
    for argument in node.args.kwonlyargs:
        found[argument.arg] = _named(argument.arg, args, defaults)
    for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
        if found[argument.arg] == GIVEN and _says_tensor(argument.annotation):
            found[argument.arg] = MADE
    if node.args.vararg is not None:
        rest = values[len(names) :]
        found[node.args.vararg.arg] = pair(*rest) if args.exact else sequence(GIVEN)
    if node.args.kwarg is not None:
        found[node.args.kwarg.arg] = FRESH
    return found


def _named(name: str, args: Args, defaults: dict[str, Any]) -> Value:
    if args.exact and name in args.named:
        return args.named[name]
    if not args.exact or name not in defaults:
        return GIVEN
    default = defaults[name]
    code = isinstance(default, types.FunctionType | types.BuiltinFunctionType | type)
    return lift(default, own=False) if default is None or is_atom(default) or code else GIVEN


def _says_tensor(annotation: ast.expr | None) -> bool:
    if annotation is None:
        return False
    constant = isinstance(annotation, ast.Constant)
    text = str(annotation.value) if constant else ast.unparse(annotation)  # type: ignore[attr-defined]
    return _TENSOR.fullmatch(text) is not None


def _only_for_tensors(index: ast.expr) -> bool:
    if isinstance(index, ast.Tuple):
        return any(
            isinstance(i, ast.Slice) or (isinstance(i, ast.Constant) and i.value in {None, ...})
            for i in index.elts
        )
    if isinstance(index, ast.UnaryOp):
        return isinstance(index.op, ast.Invert)
    if isinstance(index, ast.Constant):
        return index.value is ...
    return isinstance(index, ast.Compare)


def _joined(environments: list[dict[str, Value]]) -> dict[str, Value]:
    joined: dict[str, Value] = {}
    for environment in environments:
        for name, value in environment.items():
            joined[name] = joined.get(name, NOTHING) | value
    return joined


def _as_load(target: ast.expr) -> Any:
    return ast.parse(ast.unparse(target), mode="eval").body


__all__ = ["ANY", "Args", "Body", "Elements", "parameters"]
