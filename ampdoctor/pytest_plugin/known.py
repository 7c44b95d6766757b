"""A dict that says which keys it has where a test asks for another one."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")

_NAMED = 10


class Known(dict[str, Value]):
    """Readings by metric, or by site.

    Args:
        what: what the keys are called.
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def __missing__(self, key: str) -> Value:
        __tracebackhide__ = True
        names = [name or "'' (the run as a whole)" for name in self]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise AssertionError(
            f"nothing was measured of the {self._what} {key!r}; known: {', '.join(names[:_NAMED])}{more}"
        )
