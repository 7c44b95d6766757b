"""Following the calls of a few modules at next to no cost.

`__call__` is wrapped on the classes of those modules. Hooks on the modules themselves would go along into every copy
and every pickle that the user makes of them, and an exception would pass them by.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


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
        self._wanted, self._begin, self._end = wanted, begin, end
        self._wrapped: list[tuple[type[nn.Module], Any, Any]] = []

    def follow(self, kind: type[nn.Module]) -> None:
        """Wrap a class, once."""
        if any(kind is known for known, _, _ in self._wrapped):
            return
        own = kind.__dict__.get("__call__")
        wrapper = self._wrapper(kind, own)
        setattr(kind, "__call__", wrapper)  # noqa: B010 - mypy knows better than to assign a method
        self._wrapped.append((kind, own, wrapper))

    def remove(self) -> None:
        """Leave the classes as they were; where somebody has wrapped again, ours does nothing any more."""
        for kind, own, wrapper in reversed(self._wrapped):
            if kind.__dict__.get("__call__") is not wrapper:
                continue
            if own is None:
                delattr(kind, "__call__")
            else:
                setattr(kind, "__call__", own)  # noqa: B010
        self._wrapped.clear()

    def _wrapper(self, kind: type[nn.Module], own: Any) -> Callable[..., Any]:
        wanted, begin, end = self._wanted, self._begin, self._end

        @functools.wraps(own or nn.Module.__call__)
        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it becomes that method
            call = own.__get__(self, kind) if own is not None else super(kind, self).__call__  # type: ignore[misc]
            # Asked first: what torch.compile traces of this is then a constant.
            if torch.compiler.is_compiling() or not wanted(self):
                return call(*args, **kwargs)
            token = begin(self, args, kwargs)
            if token is None:
                return call(*args, **kwargs)
            result = None
            try:
                result = call(*args, **kwargs)
            finally:
                end(token, result)
            return result

        return __call__
