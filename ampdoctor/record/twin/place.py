"""Where in the program an operation is: module, direction, and the line of the user's code.

Every node of the autograd graph has a sequence number, given when its forward operation ran. So what a forward
operation knows of its place is found again when its backward runs.
"""

from __future__ import annotations

import inspect
import os
import sys
from functools import cache
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.utils.checkpoint

from ampdoctor.record.callsite import CallSite, call_site

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_CHECKPOINT = str(torch.utils.checkpoint.__file__)

_CALL = torch.nn.Module._call_impl.__code__
_BACKWARD = torch.autograd.graph._engine_run_backward.__code__

NOWHERE = CallSite(None, None, None)


class Place(NamedTuple):
    """A place in the program.

    Attributes:
        module: path of the innermost module; None outside any.
        backward: it is a part of the backward pass.
        source: the user's line that ran it, or whose forward it undoes.
    """

    module: str | None
    backward: bool
    source: CallSite


class Places:
    """Follows the training through its modules.

    Args:
        lines: look up the user's line of each operation, which costs some microseconds.
        site: how that line is found.
    """

    def __init__(self, *, lines: bool, site: Callable[[], CallSite] = call_site) -> None:
        self._lines, self._site = lines, site
        self._stack: list[tuple[int, str]] = []
        self._by_sequence: dict[int, Place] = {}
        self._reached = {get_ident(): torch._C._autograd._get_sequence_nr()}

    def enter(self, path: str) -> None:
        """A module begins."""
        self._stack.append((torch._C._current_graph_task_id(), path))

    def leave(self, path: str) -> None:
        """A module is done; those above it on the stack were left by an exception."""
        paths = [p for _, p in self._stack]
        if path in paths:
            del self._stack[len(paths) - 1 - paths[::-1].index(path) :]

    def current(self) -> Place:
        """Return the place of the operation that is about to run."""
        task = torch._C._current_graph_task_id()
        while self._stack and self._stack[-1][0] not in {task, -1}:
            self._stack.pop()  # left by an exception inside a backward pass that is over
        recomputing = bool(self._stack) and self._stack[-1][0] == task
        if recomputing and task != -1 and not _in_module():
            # A recomputation stops, by an exception, as soon as it has what it was for.
            while self._stack and self._stack[-1][0] == task:
                self._stack.pop()
            recomputing = False
        if task == -1 or recomputing or (torch.is_grad_enabled() and _in_checkpoint()):
            return self._forward()
        return self._backward()

    def _forward(self) -> Place:
        module = self._stack[-1][1] if self._stack else None
        place = Place(module, False, self._site() if self._lines else NOWHERE)
        ahead = torch._C._autograd._get_sequence_nr()
        thread = get_ident()  # each counts for itself
        reached = self._reached.get(thread, ahead - 1)
        if ahead != reached:
            # The node of an operation has its number before the operation itself comes by here.
            for number in range(reached, ahead):
                self._by_sequence[number] = place
            self._reached[thread] = ahead
        return place

    def _backward(self) -> Place:
        node = torch._C._current_autograd_node()
        # None between two nodes, where gradients are added up.
        known = self._by_sequence.get(node._sequence_nr()) if node is not None else None  # type: ignore[redundant-expr]
        if known is None:
            return Place(None, True, NOWHERE)
        if self._lines and _written_by_user(type(node)):
            return Place(known.module, True, self._site())
        return Place(known.module, True, known.source)


def _in_module() -> bool:
    """Whether a module's call is under way within the backward pass at hand."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _BACKWARD:
        if frame.f_code is _CALL:
            return True
        frame = frame.f_back
    return False


def _in_checkpoint() -> bool:
    """Whether a forward is computed again in the midst of a backward pass; modules need not be in it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == _CHECKPOINT:
            return True
        frame = frame.f_back
    return False


@cache
def _written_by_user(node: Any) -> bool:
    """Whether the node is of a `torch.autograd.Function` whose backward is not torch's own."""
    function = getattr(node, "_forward_cls", None)
    if function is None:
        return False
    code = getattr(inspect.unwrap(function.backward), "__code__", None)
    return code is not None and not code.co_filename.startswith(_TORCH)
