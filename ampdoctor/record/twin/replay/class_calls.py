"""Following the calls of a few modules at next to no cost.

`__call__` is wrapped on the classes of those modules. Hooks on the modules themselves would go along into every copy
and every pickle that the user makes of them, and an exception would pass them by. A class that is pickled by value,
as cloudpickle does with those of a script, takes along a wrapper that does nothing.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


class _Following:
    """Who is told of calls; as a pickle, nobody."""

    def __init__(
        self,
        wanted: Callable[[nn.Module], bool],
        begin: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any],
        end: Callable[[Any, Any], None],
    ) -> None:
        self.wanted, self.begin, self.end = wanted, begin, end
        self.on = True

    def __reduce__(self) -> tuple[Any, ...]:
        return SimpleNamespace, (), {"on": False}


class ClassCalls:
    """The wrapped classes.

    Args:
        wanted: whether the call of a module that begins now is to be followed; asked for every module of the classes.
        begin: given module, positional and keyword arguments; returns a token, or None not to follow after all.
        end: given the token and the result; None as result where an exception ended the call.
    """

    def __init__(
        self,
        wanted: Callable[[nn.Module], bool],
        begin: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any],
        end: Callable[[Any, Any], None],
    ) -> None:
        self._following = _Following(wanted, begin, end)
        self._wrapped: list[tuple[type[nn.Module], Any, Any]] = []

    @property
    def on(self) -> bool:
        """Whether anybody is told of calls."""
        return self._following.on

    @on.setter
    def on(self, on: bool) -> None:
        self._following.on = on

    def follow(self, kind: type[nn.Module]) -> bool:
        """Wrap a class, once; returns whether it is wrapped now."""
        if any(kind is known for known, _, _ in self._wrapped):
            return True
        own = kind.__dict__.get("__call__")
        if own is not None and not hasattr(type(own), "__get__"):
            return False  # an object to call, not a method
        wrapper = _wrapper(kind, own, self._following)
        try:
            # Not setattr: a metaclass of the user's might do anything then.
            type.__setattr__(kind, "__call__", wrapper)
        except TypeError:
            return False
        self._wrapped.append((kind, own, wrapper))
        return True

    def remove(self) -> None:
        """Leave the classes as they were; where somebody has wrapped again, ours does nothing any more."""
        following = self._following
        self._following = _Following(following.wanted, following.begin, following.end)
        self._following.on, following.on = following.on, False
        for kind, own, wrapper in reversed(self._wrapped):
            if kind.__dict__.get("__call__") is not wrapper:
                continue
            if own is None:
                type.__delattr__(kind, "__call__")
            else:
                type.__setattr__(kind, "__call__", own)
        self._wrapped.clear()


def _wrapper(kind: type[nn.Module], own: Any, following: Any) -> Callable[..., Any]:
    @functools.wraps(own or nn.Module.__call__)
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it becomes that method
        call = own.__get__(self, kind) if own is not None else super(kind, self).__call__  # type: ignore[misc]
        # Asked first: what torch.compile traces of this is then a constant.
        if torch.compiler.is_compiling() or not following.on or not following.wanted(self):
            return call(*args, **kwargs)
        token = following.begin(self, args, kwargs)
        if token is None:
            return call(*args, **kwargs)
        result = None
        try:
            result = call(*args, **kwargs)
        finally:
            following.end(token, result)
        return result

    return __call__
