"""The statements of one function, followed in order."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ampdoctor.record.twin.replay.purity_expressions import Expressions
from ampdoctor.record.twin.replay.purity_values import (
    CHECKED,
    FRESH,
    GIVEN,
    MADE,
    NOTHING,
    At,
    EffectError,
    Items,
    Known,
    New,
    Plain,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.record.twin.replay.purity_code import Function


_PASSES = 6


class Body(Expressions):
    """A function that is being followed."""

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

    # --- statements ---------------------------------------------------------------------------------

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Follow statements."""
        for statement in statements:
            follow = getattr(self, f"_do_{type(statement).__name__.lower()}", None)
            if follow is None:
                what = type(statement).__name__.lower()
                raise self.at(statement).effect(f"`{what}` is a statement that is not followed")
            follow(statement)

    def _do_pass(self, _: ast.stmt) -> None:
        """Nothing is done."""

    def _do_break(self, _: ast.Break | ast.Continue) -> None:
        self._left.append(dict(self.env))

    _do_continue = _do_break

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
        before = self.value(node.target)
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
        outside, self._left = self._left, []
        for _ in range(_PASSES):
            before = dict(self.env)
            begin()
            self.block(body)
            self.env = _joined([before, self.env, *self._left])
            if self.env == before:
                self._left = outside
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
            self._not_mangled(target)
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


def _only_for_tensors(index: ast.expr) -> bool:
    if isinstance(index, ast.Tuple):
        return any(
            isinstance(i, ast.Slice) or (isinstance(i, ast.Constant) and i.value in {None, ...}) for i in index.elts
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
