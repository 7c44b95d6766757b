"""Wrapping functions of torch so that each can be taken off again, and so that nothing of ours reaches the user."""

from __future__ import annotations

import functools
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Patches:
    """The wrappers in place, in order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def around(
        self,
        owner: Any,
        name: str,
        before: Callable[..., Any],
        after: Callable[[Any, Any, BaseException | None], None],
        *,
        everywhere: bool = False,
    ) -> None:
        """Wrap `owner.name` with `before(*args, **kwargs)` and `after(token, result, error)`; both must not raise.

        With `everywhere`, whoever has got hold of the function before calls the wrapper too, by whatever name: a
        global of a module, a variable of a function that has not returned yet.
        """
        original = getattr(owner, name)
        inside = everywhere and isinstance(original, FunctionType)
        call = _copy(original) if inside else original

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            token = before(*args, **kwargs)
            try:
                result = call(*args, **kwargs)
            except BaseException as error:
                after(token, None, error)
                raise
            after(token, result, None)
            return result

        if inside:
            self._replace_code(original, wrapper)
        else:
            self.replace(owner, name, wrapper)

    def undo(self) -> None:
        """Take every wrapper off. One that somebody has wrapped again stays, and does nothing any more."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def replace(self, owner: Any, name: str, wrapper: Any) -> None:
        """Put `wrapper` in the place of `owner.name`."""
        original = getattr(owner, name)
        setattr(owner, name, wrapper)

        def undo() -> None:
            if getattr(owner, name, None) is wrapper:
                setattr(owner, name, original)

        self._undo.append(undo)

    def _replace_code(self, function: FunctionType, wrapper: Callable[..., Any]) -> None:
        """Have a call of `function`, which stays the object that it is, run `wrapper`."""
        name = f"_ampdoctor_{function.__name__}_{id(wrapper)}"
        original, ours = function.__code__, _calling(name, function.__code__)
        function.__globals__[name] = wrapper
        function.__code__ = ours

        def undo() -> None:
            if function.__code__ is ours:
                function.__code__ = original
                del function.__globals__[name]

        self._undo.append(undo)


def _copy(function: FunctionType) -> FunctionType:
    """Return a function that does what `function` does now, whatever becomes of its code."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _calling(name: str, original: CodeType) -> CodeType:
    """Return code that passes a call on to the global called `name`, for a function that has had the code `original`.

    A function keeps its closure, so the code claims as many variables of it. A global, and not a constant of the code:
    torch.compile knows functions as the one and not as the other.
    """
    template = _pass_on.__code__
    return template.replace(co_names=(name,), co_freevars=original.co_freevars, co_name=original.co_name)


def _pass_on(*args: Any, **kwargs: Any) -> Any:
    return _pass_on(*args, **kwargs)  # in the copies of its code, another global has this one's place
