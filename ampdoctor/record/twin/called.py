"""Calling the run's own operation as it would have been called without a mode."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_AS_TENSORS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the run's own operation.

    A mode is shown the tensor that stands for a number of Python's (the 4 of `loss / 4`, saved for backward) as that
    number, and some operations don't take it back.
    """
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:
        if "Unable to cast" not in str(error) or not _numbers(func, args):
            raise
    places = _tensor_places(func)
    return func(*(_tensor(a) if n in places else a for n, a in enumerate(args)), **kwargs)


def _numbers(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a number stands where the operation, one of torch's own, asks for a tensor: it can't have begun."""
    return any(n in _tensor_places(func) and type(a) in _AS_TENSORS for n, a in enumerate(args))


@cache
def _tensor_places(func: Any) -> frozenset[int]:
    schema = getattr(func, "_schema", None)
    if schema is None or schema.name.partition("::")[0] not in {"aten", "prims"}:
        return frozenset()
    kinds = enumerate(str(argument.type) for argument in schema.arguments)
    return frozenset(n for n, kind in kinds if kind in {"Tensor", "Optional[Tensor]"})


def _tensor(value: Any) -> Any:
    dtype = _AS_TENSORS.get(type(value))
    return value if dtype is None else torch.tensor(value, dtype=dtype)
