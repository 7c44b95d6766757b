"""Half weights that no optimizer holds, because it trains FP32 masters of them: their gradients, before code moves on.

Megatron and apex (O2) keep such pairs, and so does many a loop by hand: it adds up the gradients of the half weights,
copies the sums to the masters, steps those and copies them back. No call tells when the sums are complete. They are at
the latest when somebody steps, clips, unscales or clears gradients.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch
from torch import nn

from ampdoctor.record.groups import parameters_of
from ampdoctor.record.tensors import HALVES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.record.state import State


class WorkingCopies:
    """Those that the backward passes of the step at hand have reached, on examined steps."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._step = -1
        self._reached: dict[int, weakref.ref[torch.Tensor]] = {}
        self._recorded = False

    def reached(self, leaves: Iterable[torch.Tensor]) -> None:
        """A backward pass has reached `leaves`."""
        if self._state.tensors is None:
            return
        if self._step != self._state.log.step:
            self._step, self._recorded = self._state.log.step, False
            self._reached.clear()
        halves = (leaf for leaf in leaves if isinstance(leaf, nn.Parameter) and leaf.dtype in HALVES)
        self._reached |= {id(leaf): weakref.ref(leaf) for leaf in halves if id(leaf) not in self._reached}

    def record(self) -> None:
        """Record their gradients, once a step: what code does next may be to clear them."""
        state = self._state
        if self._recorded or self._step != state.log.step or not self._reached:
            return
        alive = [leaf for ref in self._reached.values() if (leaf := ref()) is not None]
        copies = [leaf for leaf in alive if leaf.grad is not None and state.optimizers.owner(leaf) is None]
        # Weights that were meant to be frozen get gradients too, that nobody uses; they have no masters.
        if copies and sum(map(torch.numel, copies)) <= self._trained_in_fp32():
            self._recorded = True
            state.weights.gradients_of(copies, scaled=state.log.pass_scale is not None)

    def _trained_in_fp32(self) -> int:
        optimizers = list(self._state.optimizers.live())
        return sum(p.numel() for o in optimizers for p in parameters_of(o) if p.dtype == torch.float32)
