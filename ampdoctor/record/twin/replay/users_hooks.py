"""Hooks of the user's on modules and tensors: they would run once more, and what they do nobody can put back."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_hooks

from ampdoctor.record.patching import Patches
from ampdoctor.record.sites import parts
from ampdoctor.record.twin.replay.roots import modules_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import nn

_OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_NOT_THE_USERS = ("torch.", "ampdoctor.")


def users_hooks(modules: Iterable[nn.Module], tensors: Iterable[torch.Tensor]) -> str | None:
    """Return which hooks of the user's an additional call of `modules` would set off; None where it would none."""
    if any(_any(getattr(torch_hooks, f"_global{kind}", {})) for kind in _OF_MODULES):
        return "hooks of the training's own on all modules would run a second time"
    for module in {id(m): m for root in modules for m in modules_below(root)}.values():
        if any(_any(parts(module, kind)) for kind in _OF_MODULES):
            return f"hooks of the training's own on {type(module).__name__} would run a second time"
        for parameter in parts(module, "_parameters").values():
            if parameter is not None and _any(parameter._backward_hooks):
                return "hooks of the training's own on weights would run a second time"
    if any(_any(tensor._backward_hooks) for tensor in tensors):
        return "hooks of the training's own on inputs would run a second time"
    return None


class TensorHooks:
    """Sees whether the user's code sets hooks on tensors.

    Attributes:
        met: it has.
    """

    def __init__(self) -> None:
        self.met = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look out for them."""
        original = torch.Tensor.register_hook

        @functools.wraps(original)
        def register_hook(tensor: torch.Tensor, hook: Any) -> Any:
            self.met = self.met or _is_users(hook)
            return original(tensor, hook)  # type: ignore[no-untyped-call]

        patches = Patches()
        patches.replace(torch.Tensor, "register_hook", register_hook)
        try:
            yield
        finally:
            patches.undo()


def _any(hooks: Mapping[Any, Any] | None) -> bool:
    return hooks is not None and any(_is_users(hook) for hook in hooks.values())


def _is_users(hook: Any) -> bool:
    while type(hook) is functools.partial:
        hook = hook.func
    hook = getattr(hook, "__func__", hook)
    module = getattr(hook, "__module__", None) or type(hook).__module__
    return not f"{module}.".startswith(_NOT_THE_USERS)
