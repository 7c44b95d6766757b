"""Where in the program an operation is: module, direction, and the line of the user's code.

Every node of the autograd graph has a sequence number, given when its forward operation ran. So what a forward
operation knows of its place is found again when its backward runs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ampdoctor.record.callsite import CallSite, call_site

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
    """

    def __init__(self, *, lines: bool) -> None:
        self._lines = lines
        self._stack: list[tuple[int, str]] = []
        self._by_sequence: dict[int, Place] = {}
        self._reached = torch._C._autograd._get_sequence_nr()

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
        if task == -1 or recomputing:
            return self._forward()
        return self._backward()

    def _forward(self) -> Place:
        module = self._stack[-1][1] if self._stack else None
        place = Place(module, False, call_site() if self._lines else NOWHERE)
        ahead = torch._C._autograd._get_sequence_nr()
        if ahead != self._reached:
            # The node of an operation has its number before the operation itself comes by here.
            if ahead < self._reached:  # another thread's count
                self._reached = ahead - 1
            for number in range(self._reached, ahead):
                self._by_sequence[number] = place
            self._reached = ahead
        return place

    def _backward(self) -> Place:
        node = torch._C._current_autograd_node()
        # None between two nodes, where gradients are added up.
        known = self._by_sequence.get(node._sequence_nr()) if node is not None else None  # type: ignore[redundant-expr]
        if known is None:
            return Place(None, True, NOWHERE)
        return Place(known.module, True, known.source)
