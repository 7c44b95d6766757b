"""What an exception tells while it passes: where it was raised, in which module and which custom autograd.Function.

Nothing of it is kept: an exception holds its frames, and frames hold every tensor of a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.autograd.function
from torch import nn
from torch.nn.modules import module as module_calls

from ampdoctor.record.callsite import CallSite, call_site, is_the_users, shortened
from ampdoctor.record.frames import variables_of
from ampdoctor.record.guard import told
from ampdoctor.record.tensors import autocast_dtype, dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from ampdoctor.record.sites import Sites

_LONGEST_TEXT = 4000
"""Characters of a message that are kept; the compiler's hold whole graphs."""

_MOST_ALIKE = 10
"""Rows of exceptions of one kind from one line: code that goes on after each batch would fill the step for ever."""

_MOST_KINDS = 200
"""Lines that exceptions are told of."""

_CONTROL_FLOW = (StopIteration, StopAsyncIteration)
_CONTROL_FLOW_OF_TORCH = "torch.utils.checkpoint"
"""Checkpointing ends its recomputation by an exception."""

_CALL_FILE = module_calls.__file__
_FUNCTION_FILE = torch.autograd.function.__file__


class Passed(NamedTuple):
    """What a traceback has passed.

    Attributes:
        site: its innermost line outside torch and ampdoctor.
        module: path of the innermost module.
        function: the innermost custom autograd.Function that is not torch's own, and its method.
    """

    site: CallSite
    module: str | None
    function: str | None


class RaisedErrors:
    """Tells of every exception once.

    Attributes:
        left_autocast: dtype of the autocast block that was left last; None before the first.
    """

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._last: tuple[object, ...] = ()
        self._alike: dict[tuple[object, ...], int] = {}
        self.left_autocast: torch.dtype | None = None

    def is_news(self, error: BaseException) -> bool:
        """Whether `error` is to get a row of its own: it has none yet, and is no control flow that repeats itself."""
        kind = type(error)
        if not issubclass(kind, Exception) or issubclass(kind, _CONTROL_FLOW):
            return False
        if kind.__module__ == _CONTROL_FLOW_OF_TORCH or _identity(error) == self._last:
            return False
        place = (kind, *_innermost(error))
        number = self._alike.get(place, 0)
        if number >= _MOST_ALIKE or (not number and len(self._alike) >= _MOST_KINDS):
            return False
        self._alike[place] = number + 1
        return True

    def columns(self, error: BaseException) -> dict[str, Any]:
        """Return the columns of the row of `error`."""
        self._last = _identity(error)
        passed = self._passed(error)
        left = None if self.left_autocast is None else dtype_name(self.left_autocast)
        return {
            "error": told(error)[:_LONGEST_TEXT],
            "error_file": passed.site.file, "error_line": passed.site.line, "error_function": passed.site.function,
            "error_module": passed.module, "custom_function": passed.function,
            "last_autocast": autocast_dtype("cuda") or autocast_dtype("cpu") or left,
            "anomaly_mode": torch.is_anomaly_enabled(),
        }  # fmt: skip

    def _passed(self, error: BaseException) -> Passed:
        site: CallSite | None = None
        module: nn.Module | None = None
        function: str | None = None
        for frame, line in _frames(error):
            code = frame.f_code
            if code.co_filename == _CALL_FILE:
                holder = variables_of(frame).get("self")
                if issubclass(type(holder), nn.Module) and holder is not module:
                    module = holder
                    # A module that a Function calls forward has a line of its own to answer for.
                    function = function if function and function.endswith(".backward") else None
            elif code.co_filename == _FUNCTION_FILE:
                function = _custom_function(variables_of(frame)) or function
            elif is_the_users(code.co_filename):
                site = CallSite(code.co_filename, line, getattr(code, "co_qualname", code.co_name))
        path = None if module is None else self._sites.path(module)
        return Passed(call_site() if site is None else shortened(site), path, function)


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of the traceback with the line that each had come to, outermost first."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _innermost(error: BaseException) -> tuple[str, int]:
    place = ("", 0)
    for frame, line in _frames(error):
        place = (frame.f_code.co_filename, line)
    return place


def _identity(error: BaseException) -> tuple[object, ...]:
    """Return what tells an exception from another one that is alive, and from most that are not."""
    return id(error), type(error), *_innermost(error)


def _custom_function(variables: dict[str, Any]) -> str | None:
    """Return `Name.backward` or `Name.forward` where these are the variables of a call of a custom Function."""
    node, owner = variables.get("self"), variables.get("cls")
    method = "forward"
    if issubclass(type(node), torch.autograd.function.BackwardCFunction):
        owner, method = getattr(type(node), "_forward_cls", None), "backward"
    if not isinstance(owner, type) or owner.__module__.partition(".")[0] == "torch":
        return None
    return f"{owner.__name__}.{method}"
