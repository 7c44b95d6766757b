"""Kernels of Triton's that are launched directly: no operation of torch's tells of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ampdoctor.record.patching import Patches
from ampdoctor.record.twin.operations import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@runtime_checkable
class FollowsKernels(Protocol):
    """A follower that wants to know what a kernel has written."""

    def before_kernel(self, name: str, tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
        """A kernel is about to be launched on `tensors`; returns what to call afterwards."""


class Kernels:
    """Watches the launches while a mode is in force.

    Args:
        followers: who is shown them.
        in_force: whether the mode is on in this thread.
        look: runs what followers do, and keeps their errors from the user.

    Attributes:
        watched: it is watching.
    """

    def __init__(
        self, followers: Sequence[Any], in_force: Callable[[], bool], look: Callable[[Callable[[], Any]], Any]
    ) -> None:
        self._followers = [f for f in followers if isinstance(f, FollowsKernels)]
        self._in_force, self._look = in_force, look
        self._patches = Patches()
        self.watched = False

    def watch(self) -> None:
        """Wrap Triton's launch, if Triton is there at all."""
        self.watched = True
        kind = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
        if self._followers and hasattr(kind, "run"):
            self._patches.around(kind, "run", self._before, self._after)

    def leave(self) -> None:
        """Take the wrapper off."""
        self.watched = False
        self._patches.undo()

    def _before(self, *args: Any, **kwargs: Any) -> Any:
        if not self.watched or kwargs.get("warmup") or not self._look(self._in_force):
            return None
        return self._quietly(lambda: self._begun(args, kwargs))

    def _begun(self, args: Any, kwargs: dict[str, Any]) -> list[Callable[[], None]]:
        function, *given = args
        if str(getattr(function, "__module__", "")).startswith("ampdoctor."):
            return []  # our own look at a tensor
        name = f"triton.{getattr(function, '__name__', 'kernel')}"
        tensors = [*_tensors([*given, *kwargs.values()])]
        return [f.before_kernel(name, tensors) for f in self._followers]

    def _after(self, waiting: Any, _: Any, error: BaseException | None) -> None:
        if waiting and error is None and self.watched:
            self._quietly(lambda: [then() for then in waiting])

    def _quietly(self, act: Callable[[], Any]) -> Any:
        def quiet() -> Any:
            with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
                return act()

        return self._look(quiet)


def _tensors(arguments: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among the arguments of a kernel; Triton's own wrappers hold theirs as `base`."""
    for value in arguments:
        base = getattr(value, "base", None)
        yield from tensors_of(base if isinstance(base, torch.Tensor) else value)
