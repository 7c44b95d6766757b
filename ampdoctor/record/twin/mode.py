"""The mode that sees every operation of a twin step and shows it to those who follow it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ampdoctor.record.quiet import OwnMode, traced
from ampdoctor.record.twin.operations import Operation, traits_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from ampdoctor.record.twin.place import Places

_PLAIN = torch.Tensor.__torch_dispatch__


class Follower(Protocol):
    """Looks at each operation before it runs and, where it asks for that, at its result.

    Attributes:
        not_twinned: operations that it could not execute, with the reason and how often.
    """

    not_twinned: Counter[str]

    def before(self, operation: Operation) -> Callable[[Any], None] | None:
        """Return what to call with the result, or None."""


class TwinMode(OwnMode):
    """Executes each operation as it is, and lets the followers do theirs around it.

    The run's own operation is called exactly as without us, and its exceptions are the user's. An error of a follower
    ends the second opinion and nothing else.

    Args:
        followers: who looks on.
        places: where in the program each operation is.
        on_error: told of an error of a follower.

    Attributes:
        on: operations are shown to the followers.
        operations: operations seen.
        seconds: time that the followers have taken, on the host.
    """

    supports_higher_order_operators = True

    def __init__(
        self, followers: Sequence[Follower], places: Places, on_error: Callable[[Exception], None]
    ) -> None:
        super().__init__()
        self._followers = followers
        self._places = places
        self._on_error = on_error
        self.on = True
        self.operations = 0
        self.seconds = 0.0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not (self.on and self.wanted) or traced():
            return _called(func, args, kwargs)
        if any(kind.__torch_dispatch__ is not _PLAIN for kind in types):
            return NotImplemented  # a class that wraps tensors: what it does with those comes by here as well
        waiting = self._before(func, args, kwargs)
        result = _called(func, args, kwargs)
        if waiting:
            self._after(waiting, result)
        return result

    def _before(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Callable[[Any], None]]:
        began = time.perf_counter()
        self.operations += 1
        try:
            operation = Operation(func, args, kwargs, traits_of(func), self._places.current())
            return [then for f in self._followers if (then := f.before(operation)) is not None]
        except Exception as error:  # noqa: BLE001 - never into the training
            self._fail(error)
            return []
        finally:
            self.seconds += time.perf_counter() - began

    def _after(self, waiting: list[Callable[[Any], None]], result: Any) -> None:
        began = time.perf_counter()
        try:
            for then in waiting:
                then(result)
        except Exception as error:  # noqa: BLE001 - never into the training
            self._fail(error)
        finally:
            self.seconds += time.perf_counter() - began

    def _fail(self, error: Exception) -> None:
        self.on = False
        self._on_error(error)


def _called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the run's own operation.

    A mode is shown the tensor that stands for a number of Python's (the 4 of `loss / 4`, saved for backward) as that
    number, and some operations don't take it back.
    """
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:
        if "Unable to cast" not in str(error):
            raise
    return func(
        *(torch.scalar_tensor(a) if isinstance(a, (int, float)) else a for a in args), **kwargs
    )
