"""The two global module hooks, and how torch.compile is kept from seeing them.

A hook that is in place while a module is compiled becomes a part of what the compiled code is guarded on: it would be
compiled anew for every examined step, and after eight times never again. So the hooks are gone while the compiler
looks, and it compiles what it would without us. Compiled code then runs without asking for hooks.
"""

from __future__ import annotations

import contextlib
import sys
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_hooks

from ampdoctor.record.patching import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle

_DICTIONARIES = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_pre_hooks", "_global_forward_hooks",
    "_global_forward_hooks_always_called", "_global_forward_hooks_with_kwargs",
)  # fmt: skip

_SHOWS_NAMED = "with_kwargs" in signature(torch_hooks.register_module_forward_hook).parameters
"""Older versions of torch keep a call's named arguments from global hooks."""


class GlobalHooks:
    """Puts the hooks in place and takes them off.

    Args:
        before: forward pre-hook.
        after: forward hook, with keyword arguments.
        failed: called with the exception that a module's call ends with.
    """

    def __init__(
        self, before: Callable[..., None], after: Callable[..., None], failed: Callable[[BaseException], None]
    ) -> None:
        self._before = before
        self._after = after
        self._failed = failed
        self._handles: list[RemovableHandle] = []
        self._hidden = False
        self._patches = Patches()
        self._compiler: Any = None

    def install(self) -> None:
        """Get ready, without any hook yet."""
        if hasattr(torch_hooks, "_has_any_global_hook"):
            self._patches.replace(torch_hooks, "_has_any_global_hook", self._any_of_the_users)
        self._watch_compiler()
        if self._compiler is None:
            self._patches.around(torch, "compile", _nothing, self._watch_compiler)

    def remove(self) -> None:
        """Leave everything as it was."""
        self.take_off()
        self._patches.undo()
        if self._compiler is not None:
            with contextlib.suppress(ValueError):
                self._compiler.remove_start_callback(self._hide)
                self._compiler.remove_end_callback(self._show)
            self._compiler = None

    def put(self) -> None:
        """Put the hooks in place."""
        self.take_off()
        self._watch_compiler()
        self._handles = [
            torch_hooks.register_module_forward_pre_hook(self._before),
            self._put_after(),
            torch_hooks.register_module_forward_hook(self._left, always_call=True),
        ]

    def _left(self, *_: object) -> None:
        """A module's call has ended; where it was by an exception, torch calls from its handler, which that came to."""
        error = sys.exc_info()[1]
        if error is None:
            return
        trace = error.__traceback__
        if trace is not None and trace.tb_frame is sys._getframe(1):
            self._failed(error)

    def _put_after(self) -> RemovableHandle:
        register: Any = torch_hooks.register_module_forward_hook
        if _SHOWS_NAMED:
            handle: RemovableHandle = register(self._after, with_kwargs=True)
            return handle
        after = self._after
        without: RemovableHandle = register(lambda module, args, out: after(module, args, {}, out))
        return without

    def take_off(self) -> None:
        """Take the hooks off."""
        self._hidden = False
        for handle in self._handles:
            handle.remove()
            # Torch forgets to, and "has any global hook" would stay true for ever.
            getattr(torch_hooks, "_global_forward_hooks_with_kwargs", {}).pop(handle.id, None)
        self._handles.clear()

    def _watch_compiler(self, *_: object) -> None:
        """Ask to be told when something is compiled, once the compiler is loaded: loading it takes a second."""
        dynamo = sys.modules.get("torch._dynamo")
        handler = getattr(getattr(dynamo, "callback", None), "callback_handler", None)
        # torch._dynamo.reset() forgets whom to tell.
        if handler is not None and self._hide not in handler.start_callbacks:
            handler.register_start_callback(self._hide)
            handler.register_end_callback(self._show)
            self._compiler = handler

    def _hide(self, *_: object) -> None:
        if self._handles:
            self.take_off()
            self._hidden = True

    def _show(self, *_: object) -> None:
        if self._hidden:
            self.put()

    def _any_of_the_users(self) -> bool:
        """Torch asks in order to warn of hooks that fire twice on a compiled module; of ours the user knows nothing."""
        own = {handle.id for handle in self._handles}
        return any(key not in own for name in _DICTIONARIES for key in getattr(torch_hooks, name, ()))


def _nothing(*_: object, **__: object) -> None:
    """Before `torch.compile`."""
