"""Containers that exist already, and what they hold."""

from __future__ import annotations

import types
from typing import Any

from torch import nn

from ampdoctor.record.twin.replay.purity_tables import CONTAINERS
from ampdoctor.record.twin.replay.purity_values import in_torch, is_atom
from ampdoctor.record.twin.replay.reachable import attributes_of

_SEQUENCES = (nn.ModuleList, nn.Sequential, nn.ParameterList)
BY_NAME = (nn.ModuleDict, nn.ParameterDict)


def parts(obj: Any) -> dict[Any, Any] | None:
    """Return what a container holds by index or key; None where it is none, or one with methods of the user's."""
    kind = type(obj)
    if kind in (*CONTAINERS, tuple, frozenset):
        return dict(dict.items(obj)) if issubclass(type(obj), dict) else dict(enumerate(obj))
    for bases, by_name in ((_SEQUENCES, False), (BY_NAME, True)):
        if issubclass(kind, bases):
            base = next(b for b in bases if issubclass(kind, b))
            same = all(getattr(kind, n) is getattr(base, n) for n in ("__iter__", "__getitem__"))
            held = attributes_of(obj) or {}
            inside = {**held.get("_parameters", {}), **held.get("_modules", {})}
            if not same:
                return None
            return inside if by_name else dict(enumerate(inside.values()))
    return None


def has_own(obj: Any, name: str) -> bool:
    """Whether a module that is a container has such a method apart from those of a container."""
    return issubclass(type(obj), nn.Module) and name not in {"items", "keys", "values"}


def runs_code(obj: Any) -> bool:
    """Whether an operator that is applied to `obj` may run code of the user's."""
    plain = issubclass(type(obj), nn.Module | type | types.FunctionType | types.ModuleType)
    kind = type(obj)
    known = kind in (*CONTAINERS, tuple, frozenset, types.BuiltinFunctionType, types.MethodType)
    return not (plain or known or is_atom(obj) or in_torch(kind.__module__))
