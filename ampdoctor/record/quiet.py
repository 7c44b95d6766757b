"""Keeping out of what watches or traces the user's operations: the modes of torch's Python dispatch.

A mode that counts operations must not count ours, one that draws random numbers must not draw for ours, and what a
tracer records would be replayed for ever.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from torch._C._functorch import peek_interpreter_stack
from torch._ops import _len_torch_dispatch_stack_pre_dispatch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from ampdoctor.record.headroom import capturing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_TRACING_MODES = tuple(torch._C._TorchDispatchModeKey.__members__.values())
"""Fake tensors, proxies and functionalization: what passes through has no values."""


def traced() -> bool:
    """Whether this is no plain execution: a trace or CUDA graph would replay ours for ever, and values of torch.func
    or fake tensors can't be looked at."""
    if _tracing_state() is not None or peek_interpreter_stack() is not None:
        return True
    return in_tracing_mode() or capturing()


_DisableTorchFunction = torch._C.DisableTorchFunction
_tracing_state = torch._C._get_tracing_state
_modes = torch._C._len_torch_dispatch_stack
_graph_task = torch._C._current_graph_task_id
"""Asked twice for each call of a module: to look them up would take as long as the answer."""


def in_tracing_mode() -> bool:
    """Whether a mode is on in which tensors are stand-ins."""
    if _len_torch_dispatch_stack_pre_dispatch():
        return True
    if not _modes():
        return False
    return any(torch._C._get_dispatch_mode(key) is not None for key in _TRACING_MODES)


@contextlib.contextmanager
def autocast_off(device_type: str) -> Iterator[None]:
    """Switch autocast off for a while. Not by torch.autocast: leaving that may clear the cache of cast weights, and
    with it change the gradients."""
    # Torch knows no autocast for some devices (meta) and would raise.
    if not torch.amp.is_autocast_available(device_type) or not torch.is_autocast_enabled(device_type):
        yield
        return
    torch.set_autocast_enabled(device_type, False)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device_type, True)


def in_backward() -> bool:
    """Whether this thread is inside a backward pass."""
    return _graph_task() != -1


class OwnMode(TorchDispatchMode):
    """A mode of ours.

    Attributes:
        wanted: it is to be in force. A backward pass puts back, at its end, the modes that were on at its beginning:
            one that was taken off meanwhile may lie on the stack again.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wanted = True


class Quiet:
    """The user's modes set aside for a while; where none is on, as nearly always, it takes under a microsecond.

    Attributes:
        beneath: a mode of ours that lies beneath the user's while nobody is quiet. There it outlives theirs, whichever
            ends first: a mode that ends takes the uppermost one off, whosever that is.
    """

    def __init__(self) -> None:
        self.beneath: OwnMode | None = None
        self._modes: list[Any] = []
        self._functions: Any = None

    def begin(self) -> None:
        """Set the modes of this thread aside."""
        # The classes of tensors of the user's, too, have a say in every look at an attribute.
        self._functions = _DisableTorchFunction()
        self._functions.__enter__()
        while _modes():
            mode = _python_dispatch._pop_mode()
            if mode is not self.beneath and (not isinstance(mode, OwnMode) or mode.wanted):
                self._modes.append(mode)

    def end(self) -> None:
        """Put them back in their order."""
        if self.beneath is not None:
            if self.beneath.wanted:
                _python_dispatch._push_mode(self.beneath)
            else:
                self.beneath = None  # switched off by another thread
        while self._modes:
            _python_dispatch._push_mode(self._modes.pop())
        if self._functions is not None:
            self._functions.__exit__(None, None, None)
            self._functions = None
