"""Losses of earlier steps that are still alive with their graphs: a list of losses, a running sum without `.item()`.

A token of ours in the loss's graph lives as long as the graph does, whatever holds it.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

from ampdoctor.record.autograd_graph import ALIVE, note

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch


class _Token:
    """Lies in a graph."""

    __slots__ = ("__weakref__",)


class HeldGraphs:
    """Counts the steps whose loss still has its graph."""

    def __init__(self) -> None:
        self._alive: dict[int, int] = {}
        self._tokens: set[weakref.ref[_Token]] = set()

    def mark(self, step: int, roots: Iterable[torch.Tensor]) -> None:
        """A backward pass of `step` starts from `roots`."""
        for root in roots:
            if root.grad_fn is not None:
                token = _Token()
                self._alive[step] = self._alive.get(step, 0) + 1
                self._tokens.add(weakref.ref(token, partial(_gone, weakref.ref(self), step)))
                note(root.grad_fn, ALIVE, token)

    def before(self, step: int) -> int:
        """Return how many steps before `step` have a loss whose graph is alive."""
        return len(self._alive) - (step in self._alive)

    def freed(self, step: int, token: weakref.ref[_Token]) -> None:
        """A graph of `step` is gone, and with it the token in it."""
        self._tokens.discard(token)
        left = self._alive.get(step, 0) - 1
        if left > 0:
            self._alive[step] = left
        else:
            self._alive.pop(step, None)


def _gone(owner: weakref.ref[HeldGraphs], step: int, token: weakref.ref[_Token]) -> None:
    held = owner()
    if held is not None:
        held.freed(step, token)
