"""The two global hooks of optimizers. torch goes through all of them, and fails the training if one goes then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle


class StepHooks:
    """Puts hooks before and after the steps of all optimizers, and takes them off when nobody is going through them.

    Args:
        before: step pre-hook; it must do nothing once it is to be gone.
        after: step post-hook, likewise.
    """

    def __init__(self, before: Callable[..., None], after: Callable[..., None]) -> None:
        self._before = before
        self._after = after
        self._inside = 0
        self._handles: list[RemovableHandle] = []

    def install(self) -> None:
        """Put the hooks in place."""
        self._handles = [
            register_optimizer_step_pre_hook(self._call_before),
            register_optimizer_step_post_hook(self._call_after),
        ]

    def remove(self) -> None:
        """Take the hooks off; within one of them, those behind which others wait stay until this is called again."""
        staying = [handle for handle in self._handles if self._inside and not _is_last(handle)]
        for handle in self._handles:
            if handle not in staying:
                handle.remove()
        self._handles = staying

    def _call_before(self, *args: Any) -> None:
        if torch.compiler.is_compiling():  # a constant to the compiler, where counting would break its graph
            return
        self._inside += 1
        try:
            self._before(*args)
        finally:
            self._inside -= 1

    def _call_after(self, *args: Any) -> None:
        if torch.compiler.is_compiling():  # a constant to the compiler, where counting would break its graph
            return
        self._inside += 1
        try:
            self._after(*args)
        finally:
            self._inside -= 1


def _is_last(handle: RemovableHandle) -> bool:
    """Whether torch, going through the hooks, is done after this one: then it does not notice that it has gone."""
    hooks = handle.hooks_dict_ref()
    return hooks is None or next(reversed(hooks), None) == handle.id
