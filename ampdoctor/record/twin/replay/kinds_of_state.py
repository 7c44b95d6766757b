"""What kind of state an object has: none, that of its parts, plain attributes, or one that nobody can put back."""

from __future__ import annotations

import _socket
import datetime as dt
import decimal
import functools
import io
import logging
import operator
import pathlib
import re
import sys
import threading
import types
import uuid
import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PYTHON_CLASS = 1 << 9
"""Flag of classes that were made at run time."""

_STATELESS = (
    int, float, complex, str, bytes, type, range, slice, types.ModuleType, types.CodeType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.GenericAlias, types.UnionType, type(Ellipsis), type(NotImplemented), property, staticmethod, classmethod,
    weakref.ReferenceType, weakref.ProxyType, weakref.CallableProxyType, BaseException, re.Pattern, re.Match,
    dt.date, dt.time, dt.timedelta, dt.tzinfo, decimal.Decimal, pathlib.PurePath, uuid.UUID,
    operator.itemgetter, operator.attrgetter, operator.methodcaller, logging.Logger, logging.LoggerAdapter,
    logging.Handler, type(functools.lru_cache(int)),
)  # fmt: skip
"""Values, code, and what only caches or tells. What the user prints or logs comes out twice."""

_STATELESS_PACKAGES = frozenset({"ampdoctor", "typing", "triton", "abc", "pybind11_builtins"})
_STATELESS_MODULES = (
    "torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx", "torch.jit", "torch._ops", "torch._C",
)  # fmt: skip
"""Packages whose objects are code, or what was compiled of it."""

_UNKNOWN: tuple[tuple[Any, str], ...] = (
    (io.IOBase, "an open file"),
    (_socket.socket, "a socket"),
    (torch.jit.ScriptModule, "a scripted module"),
    ((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), "an iterator"),
    (
        (
            type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Semaphore,
            threading.Thread, threading.local,
        ),
        "a lock or a thread",
    ),
)  # fmt: skip
"""What is told by its name."""


def is_stateless(kind: type) -> bool:
    """Whether nothing in an object can change that matters to the training."""
    if issubclass(kind, _STATELESS):
        return True
    if issubclass(kind, torch.jit.ScriptModule) or issubclass(kind, torch.nn.Module):
        return False
    module = _module(kind)
    package = module.partition(".")[0]
    if package in _STATELESS_PACKAGES or kind.__name__ == "PyCapsule" or module.startswith(_STATELESS_MODULES):
        return not issubclass(kind, (torch.Tensor, torch.Generator))
    if package == "numpy":
        numpy: Any = sys.modules["numpy"]
        return issubclass(kind, (numpy.generic, numpy.dtype, numpy.ufunc))
    # Objects that torch has made in C (streams, events, process groups) hold nothing of the user's.
    return package == "torch" and not _is_plain(kind) and not issubclass(kind, torch.Tensor | torch.Generator | dict)


def parts_of_callable(value: Any, kind: type) -> Iterable[Any] | None:
    """Return what a function or method brings along besides its closure; None where `value` is neither."""
    if kind is types.FunctionType:
        return [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), vars(value)]
    if kind is types.MethodType:
        return [value.__self__, value.__func__]
    if kind is types.BuiltinFunctionType:
        return [] if value.__self__ is None else [value.__self__]
    if kind is functools.partial:
        return [value.func, value.args, value.keywords, vars(value)]
    return None


def what_is_unknown(value: Any, kind: type) -> str | None:
    """Say what `value` is where its state can't be known; None where it is plain attributes."""
    if any(value is stream for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
        return None
    named = next((name for known, name in _UNKNOWN if issubclass(kind, known)), None)
    if named is not None or _is_plain(kind):
        return named
    iterates = hasattr(kind, "__next__")
    return "an iterator" if iterates else f"an object of {kind.__module__}.{kind.__qualname__}"


def slots_of(kind: type) -> Iterator[types.MemberDescriptorType]:
    """Yield the slots of classes written in Python."""
    for base in kind.__mro__:
        if base.__flags__ & _PYTHON_CLASS and "__slots__" in vars(base):
            for slot in vars(base).values():
                if isinstance(slot, types.MemberDescriptorType):
                    yield slot


def of_user(kind: type) -> bool:
    """Whether a class is the user's, or of a library that is neither Python's nor torch's."""
    package = _module(kind).partition(".")[0]
    return package not in {"torch", "ampdoctor"} and package not in sys.stdlib_module_names


def _module(kind: type) -> str:
    name: object = kind.__module__  # a class may call itself anything
    return name if isinstance(name, str) else ""


def _is_plain(kind: type) -> bool:
    """Whether all state of an object lies in its attributes and slots: nothing that C keeps has room in it."""
    slots = sum(1 for _ in slots_of(kind))
    room = object.__basicsize__ + (2 + slots) * tuple.__itemsize__
    if kind.__basicsize__ > room or kind.__itemsize__:
        return False
    written_in_python = bool(kind.__flags__ & _PYTHON_CLASS) and (
        kind.__dictoffset__ != 0 or any("__slots__" in vars(base) for base in kind.__mro__)
    )
    return written_in_python or kind.__basicsize__ == object.__basicsize__
