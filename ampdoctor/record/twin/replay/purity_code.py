"""The source of a function, as a tree, if it is that of the code that runs.

Scripts are edited while they train: what is found in the file now must compile to what was loaded.
"""

from __future__ import annotations

import ast
import inspect
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ampdoctor.record.twin.replay.purity_values import EffectError

if TYPE_CHECKING:
    from collections.abc import Iterator

Function = ast.FunctionDef | ast.Lambda


class _File:
    """One file, by the lines and names of its functions."""

    def __init__(self, source: str, name: str) -> None:
        tree = ast.parse(source)
        self.functions: dict[tuple[int, str], list[Function]] = {}
        self.codes: dict[tuple[int, str], list[types.CodeType]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                self.functions.setdefault(_key(node), []).append(node)
        for code in _inside(compile(source, name, "exec", dont_inherit=True)):
            self.codes.setdefault((code.co_firstlineno, code.co_name), []).append(code)


_files: dict[str, tuple[int, _File]] = {}
_found: WeakKeyDictionary[types.CodeType, list[Function]] = WeakKeyDictionary()


def function_of(code: types.CodeType) -> Function:
    """Return the tree of the function that `code` was compiled from.

    Raises:
        EffectError: where there is no source, or where it has been changed since.
    """
    nodes = _found.get(code)
    if nodes is None:
        nodes = _found[code] = _nodes(code)
    if len(nodes) == 1:
        return nodes[0]
    name = f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})"
    raise EffectError(f"the source of `{name}` can't be read")


def _nodes(code: types.CodeType) -> list[Function]:
    try:
        source = "".join(inspect.findsource(code)[0])
        known = _files.get(code.co_filename)
        if known is None or known[0] != hash(source):
            known = hash(source), _File(source, code.co_filename)
            _files[code.co_filename] = known
    except (OSError, SyntaxError, ValueError, TypeError, IndexError):
        return []
    key = code.co_firstlineno, code.co_name
    loaded = _told(code)
    same = [c for c in known[1].codes.get(key, ()) if _told(c) == loaded]
    return known[1].functions.get(key, []) if len(same) == 1 else []


def _key(node: Function) -> tuple[int, str]:
    if isinstance(node, ast.Lambda):
        return node.lineno, "<lambda>"
    first = node.decorator_list[0] if node.decorator_list else node
    return first.lineno, node.name


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _inside(constant)


def _told(code: types.CodeType) -> tuple[Any, ...]:
    """Return what a function does, its name and place aside."""
    inner = tuple(_told(c) if isinstance(c, types.CodeType) else (type(c), repr(c)) for c in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, inner
