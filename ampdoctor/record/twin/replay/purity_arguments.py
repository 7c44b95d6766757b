"""Arguments of calls, and what they make of parameters."""

from __future__ import annotations

import ast
import re
import types
from typing import TYPE_CHECKING, Any

from ampdoctor.record.twin.replay.purity_values import FRESH, GIVEN, MADE, Value, is_atom, lift, pair, sequence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.record.twin.replay.purity_code import Function


_TENSOR = re.compile(r"(typing\.)?(Optional\[)?(torch\.)?Tensor\]?( ?\| ?None)?")


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


def parameters(  # noqa: C901 - every kind that Python has
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
