"""The objects that live in this process, as the garbage collector knows them."""

from __future__ import annotations

import gc
import sys
from itertools import compress
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ampdoctor.record.frames import variables_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_T = TypeVar("_T")
_S = TypeVar("_S")

_OWN = __name__.partition(".")[0] + "."

_MOST = 500_000
"""Objects that are looked at from the user's variables on."""

_LEADS_ANYWHERE = (type, ModuleType, FunctionType, BuiltinFunctionType, FrameType)
"""What these hold is not the training's alone."""


def live_instances(kind: type[_T]) -> list[_T]:
    """Return the live objects of `kind`; by `type`, because `isinstance` wakes up lazy proxies.

    Which classes are meant is asked once a class, not once an object, of which there are half a million.
    """
    found = _of_kind(kind, gc.get_objects())
    if not found and gc.get_freeze_count():
        # Of what a program has frozen the collector names none; to thaw it would freeze more than before, afterwards.
        found = _of_kind(kind, _reachable())
    return found


def live_of_both(first: type[_T], second: type[_S]) -> tuple[list[_T], list[_S]]:
    """Return what `live_instances` does of two classes without a common subclass, with one look at all objects."""
    found: list[Any] = live_instances((first, second))  # type: ignore[arg-type]
    return [o for o in found if issubclass(type(o), first)], [o for o in found if issubclass(type(o), second)]


def _of_kind(kind: type[_T], objects: list[Any]) -> list[_T]:
    types = list(map(type, objects))
    # By id: a metaclass may have made its classes unhashable.
    numbers = list(map(id, types))
    wanted = {number for number, found in dict(zip(numbers, types, strict=True)).items() if issubclass(found, kind)}
    return list(compress(objects, map(wanted.__contains__, numbers)))


def _reachable() -> list[Any]:
    """Return what hangs on the variables of the functions that run, and on those of the script."""
    seen: set[int] = set()
    found: list[Any] = []
    waiting: list[Any] = list(_variables())
    while waiting and len(found) < _MOST:
        held = gc.get_referents(*waiting)
        waiting = []
        for one in held:
            if type(one) is FunctionType and id(one) not in seen:
                seen.add(id(one))
                waiting += one.__closure__ or ()  # what it was made with, a model for instance, and not its globals
            if id(one) not in seen and not issubclass(type(one), _LEADS_ANYWHERE):
                seen.add(id(one))
                waiting.append(one)
        found += waiting
    return found


def _variables() -> Iterator[dict[str, Any]]:
    main = sys.modules.get("__main__")
    if main is not None:
        yield vars(main)
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            # Not those of ours, which hold what has been found so far.
            if not str(frame.f_globals.get("__name__", "")).startswith(_OWN):
                yield variables_of(frame)
            frame = frame.f_back
