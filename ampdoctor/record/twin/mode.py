"""The mode that sees every operation of a twin step and shows it to those who follow it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ampdoctor.record.quiet import OwnMode, traced
from ampdoctor.record.twin.called import called
from ampdoctor.record.twin.kernels import Kernels
from ampdoctor.record.twin.operations import Kind, Operation, traits_of
from ampdoctor.record.twin.threads import LOCK

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

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


class TimeIsUpError(Exception):
    """A step has more operations than there is time to look at; no defect of anybody's."""


class TwinMode(OwnMode):
    """Executes each operation as it is, and lets the followers do theirs around it.

    The run's own operation is called exactly as without us, and its exceptions are the user's. An error of a follower
    ends the second opinion and nothing else.

    Args:
        followers: who looks on.
        places: where in the program each operation is.
        on_error: told of an error of a follower.
        clock: what `seconds` are measured by, in seconds.
        limit_s: the followers are told off (TimeIsUpError) once they have taken so long.

    Attributes:
        operations: operations seen.
        seconds: time that the followers have taken, on the host.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        followers: Sequence[Follower],
        places: Places,
        on_error: Callable[[Exception], None],
        clock: Callable[[], float] = time.perf_counter,
        limit_s: float = math.inf,
    ) -> None:
        super().__init__()
        self._followers = followers
        self._places = places
        self._on_error = on_error
        self._clock, self._limit_s = clock, limit_s
        self._kernels = Kernels(followers, self._in_force, self._look)
        self._on = True
        self._entered = 0
        self.operations = 0
        self.seconds = 0.0

    @property
    def on(self) -> bool:
        """Whether operations are shown to the followers."""
        return self._on

    @on.setter
    def on(self, on: bool) -> None:
        self._on = on
        if not on:
            self._kernels.leave()

    def __enter__(self) -> Self:
        self._entered += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        self._entered -= 1
        if not self._entered:
            self._kernels.leave()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self._on:
            return called(func, args, kwargs)
        waiting = self._look(self._before, func, types, args, kwargs)
        if waiting is NotImplemented:
            return waiting
        if waiting is None:
            return called(func, args, kwargs)
        try:
            result = called(func, args, kwargs)
        except torch.cuda.OutOfMemoryError as error:
            waiting = None
            if not self._made_room(func, error):
                raise
            result = called(func, args, kwargs)
        if waiting:
            self._look(_all_called, waiting, result)
        return result

    def _before(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what to call with the result, None where the operation is not to be looked at."""
        if traced():
            return None
        for kind in types:
            if kind.__torch_dispatch__ is not _PLAIN:
                return NotImplemented  # it wraps tensors: what it does with those comes by here as well
        self.operations += 1
        if self.seconds > self._limit_s:
            raise TimeIsUpError(f"looking at its operations took longer than {self._limit_s:.0f} seconds")
        if not self._kernels.watched:
            self._kernels.watch()
        operation = Operation(func, args, kwargs, traits_of(func), self._places.current())
        return [then for f in self._followers if (then := f.before(operation)) is not None]

    def _look(self, act: Callable[..., Any], *args: Any) -> Any:
        """Return what `act`, which is ours, returns; None where it fails, which ends the second opinion."""
        began = self._clock()
        try:
            with LOCK:
                return act(*args)
        except Exception as error:  # noqa: BLE001 - never into the training
            self._fail(error)
            return None
        finally:
            self.seconds += self._clock() - began

    def _made_room(self, func: Any, error: torch.cuda.OutOfMemoryError) -> bool:
        """The run is out of memory, of which the followers have some: give it up.

        Returns whether the operation can be called once more, as nothing of it has happened yet.
        """
        if not self._on:
            return False
        self._fail(error)
        traits = traits_of(func)
        random = traits.draws or traits.kind is Kind.DRAW
        return not (random or traits.writes or traits.kind is Kind.OPAQUE)

    def _fail(self, error: Exception) -> None:
        self.on = False
        self._on_error(error)

    def _in_force(self) -> bool:
        return self._on and any(m is self for m in _get_current_dispatch_mode_stack())


def _all_called(waiting: Sequence[Callable[[Any], None]], result: Any) -> None:
    for then in waiting:
        then(result)
