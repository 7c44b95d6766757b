"""Wrapping functions of torch so that each can be taken off again, and so that nothing of ours reaches the user."""

from __future__ import annotations

import functools
import sys
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

        With `everywhere`, modules that imported the function by name get the wrapper too.
        """
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            token = before(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                after(token, None, error)
                raise
            after(token, result, None)
            return result

        places = [(owner, name)]
        if everywhere:
            places += [place for place in _places_of(original) if place != (owner, name)]
        for holder, attribute in places:
            self.replace(holder, attribute, wrapper)

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


def _places_of(function: Any) -> list[tuple[Any, str]]:
    """Return (module, name) wherever a loaded module holds `function` as a global."""
    return [
        (module, name)
        for module in list(sys.modules.values())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is function
    ]
