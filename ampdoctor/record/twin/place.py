"""Where in the program an operation is: module, direction, and the line of the user's code.

Every node of the autograd graph has a sequence number, given when its forward operation ran. So what a forward
operation knows of its place is found again when its backward runs.
"""

from __future__ import annotations

import inspect
import os
import sys
from dataclasses import dataclass, field
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


@dataclass(eq=False)
class _Thread:
    """What is known of one thread, each of which numbers its nodes for itself.

    Attributes:
        reached: the number of its next node, as far as it has been followed.
        stack: the modules under way, each with the backward pass that it runs in (-1: none).
        nodes: the places of its nodes.
    """

    reached: int
    stack: list[tuple[int, str]] = field(default_factory=list)
    nodes: dict[int, Place] = field(default_factory=dict)


class Places:
    """Follows the training through its modules.

    Args:
        lines: look up the user's line of each operation, which costs some microseconds.
        site: how that line is found.
    """

    def __init__(self, *, lines: bool, site: Callable[[], CallSite] = call_site) -> None:
        self._lines, self._site = lines, site
        self._training = get_ident()
        own = _Thread(torch._C._autograd._get_sequence_nr())
        self._threads: dict[int, _Thread] = {self._training: own}

    def enter(self, path: str) -> None:
        """A module begins."""
        self._thread().stack.append((torch._C._current_graph_task_id(), path))

    def leave(self, path: str) -> None:
        """A module is done; those above it on the stack were left by an exception."""
        stack = self._thread().stack
        paths = [p for _, p in stack]
        if path in paths:
            del stack[len(paths) - 1 - paths[::-1].index(path) :]

    def current(self) -> Place:
        """Return the place of the operation that is about to run."""
        task = torch._C._current_graph_task_id()
        thread = self._thread()
        stack = thread.stack
        while stack and stack[-1][0] not in {task, -1}:
            stack.pop()  # left by an exception inside a backward pass that is over
        recomputing = bool(stack) and stack[-1][0] == task
        if recomputing and task != -1 and not _in_module():
            # A recomputation stops, by an exception, as soon as it has what it was for.
            while stack and stack[-1][0] == task:
                stack.pop()
            recomputing = False
        if task == -1 or recomputing or (torch.is_grad_enabled() and _in_checkpoint()):
            return self._forward(thread)
        return self._backward(thread)

    def _thread(self) -> _Thread:
        number = get_ident()
        thread = self._threads.get(number)
        if thread is None:
            # The node of the operation at hand has its number already.
            thread = _Thread(max(0, torch._C._autograd._get_sequence_nr() - 1))
            self._threads[number] = thread
        return thread

    def _forward(self, thread: _Thread) -> Place:
        module = thread.stack[-1][1] if thread.stack else None
        place = Place(module, False, self._site() if self._lines else NOWHERE)
        ahead = torch._C._autograd._get_sequence_nr()
        if ahead != thread.reached:
            # The node of an operation has its number before the operation itself comes by here.
            for number in range(thread.reached, ahead):
                thread.nodes[number] = place
            thread.reached = ahead
        return place

    def _backward(self, thread: _Thread) -> Place:
        node = torch._C._current_autograd_node()
        # None between two nodes, where gradients are added up.
        known = self._place_of(node._sequence_nr(), thread) if node is not None else None  # type: ignore[redundant-expr]
        if known is None:
            return Place(None, True, NOWHERE)
        if self._lines and _written_by_user(type(node)):
            return Place(known.module, True, self._site())
        return Place(known.module, True, known.source)

    def _place_of(self, number: int, thread: _Thread) -> Place | None:
        """Return the place of a node that `thread` runs.

        A device's thread of autograd runs nodes of the training's, but for those of what it has itself computed again
        and now runs backward from within (a reentrant checkpoint).
        """
        if thread.nodes and _in_nested_backward() and (own := thread.nodes.get(number)) is not None:
            return own
        return self._threads[self._training].nodes.get(number)


def _in_nested_backward() -> bool:
    """Whether this thread has itself called for the backward pass at hand; that of the training did it elsewhere."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _BACKWARD:
            return True
        frame = frame.f_back
    return False


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
