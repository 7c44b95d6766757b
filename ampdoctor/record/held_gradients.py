"""What is in the gradients before a backward pass adds to them, and whether code of the user's resizes them after it.

Gradients that were not cleared, and a division by the loss scale written by hand (`p.grad /= scale`), are calls of
nothing that could be watched. They show in the gradients' sizes, which stay on the device.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch

from ampdoctor.record.groups import parameters_of
from ampdoctor.record.stats import measurable
from ampdoctor.record.tensors import HALVES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.record.log import Scalar, Values
    from ampdoctor.record.state import State

_PASSES = 4
"""Backward passes of an examined step before which the gradients are looked at: those of several optimizers' turns.
Later micro-batches of an accumulation add to what is there."""

_SAMPLE = 8
"""Parameters whose gradients tell of a division by hand: that is done to all alike."""


class Size(NamedTuple):
    """A norm of an optimizer's gradients: the norms of its parts, one for each device they lie on."""

    parts: tuple[Scalar, ...]
    order: float

    def of(self, values: Values) -> float | None:
        """Return the number, once it has been fetched."""
        numbers = [n for part in self.parts if (n := values.number(part)) is not None]
        if not numbers:
            return None
        if math.isinf(self.order):
            return math.nan if any(math.isnan(n) for n in numbers) else max(numbers)
        return math.hypot(*numbers)


class Resized(NamedTuple):
    """What `resized` tells: sizes of a sample of an optimizer's gradients, and of all of them."""

    now: Size
    before: Size
    whole: Size | None

    def columns(self, values: Values) -> dict[str, float | None]:
        """Return the columns of the call before which they were looked at."""
        whole = {"norm": self.whole.of(values)} if self.whole is not None else {}
        return {"resized": _ratio(self.now.of(values), self.before.of(values)), **whole}


class HeldGradients:
    """Looks at the gradients of every optimizer, on examined steps and after a skip."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._after_skip = False
        self._left: dict[str, Size] = {}
        self._left_in = -1

    def skipped(self) -> None:
        """A scaler has skipped an optimizer: are its gradients cleared?"""
        self._after_skip = True

    def before_backward(self) -> dict[str, Size] | None:
        """Return by optimizer the largest gradient that is there before a backward pass; None where not asked."""
        state = self._state
        if self._left_in != state.log.step:
            self._left.clear()
        examined = state.tensors is not None and state.log.micro_batch < _PASSES
        if not examined and not self._after_skip:
            return None
        self._after_skip = False
        return {
            state.optimizers.name(optimizer): self._size(parameters_of(optimizer), math.inf)
            for optimizer in list(state.optimizers.live())
        }

    def left(self) -> None:
        """On an examined step, a scaled backward pass or a clipping is over: from here on code may resize gradients."""
        state = self._state
        if state.tensors is None or state.log.pass_scale is None:
            return
        if self._left_in != state.log.step:
            self._left_in = state.log.step
            self._left.clear()
        for optimizer in list(state.optimizers.live()):
            self._left[state.optimizers.name(optimizer)] = self._sample(optimizer)

    def resized(self, optimizer: torch.optim.Optimizer, *, whole: bool = False) -> Resized | None:
        """Return the size of the optimizer's gradients now, and what it was when they had been made.

        With `whole`, also that of all of them: a clipping by hand brings it to the same number each time.
        """
        before = self._left.pop(self._state.optimizers.name(optimizer), None)
        if before is None or self._left_in != self._state.log.step:
            return None
        now = self._sample(optimizer)
        return Resized(now, before, self._size(parameters_of(optimizer), 2.0) if whole else None)

    def _sample(self, optimizer: torch.optim.Optimizer) -> Size:
        held = (p for p in parameters_of(optimizer) if p.grad is not None)
        return self._size(islice(held, _SAMPLE), 2.0)

    def _size(self, parameters: Iterable[torch.Tensor], order: float) -> Size:
        norms: dict[torch.device, list[torch.Tensor]] = {}
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None and measurable(gradient) and gradient.numel():
                wide = torch.float32 if gradient.dtype in HALVES else None
                norm = torch.linalg.vector_norm(gradient.detach(), order, dtype=wide)
                norms.setdefault(norm.device, []).append(norm)
        # torch's norm of infinite order hands a NaN on.
        parts = [torch.linalg.vector_norm(torch.stack([norm.float() for norm in n]), order) for n in norms.values()]
        return Size(tuple(self._state.log.scalar(part) for part in parts), order)


def holding(sizes: dict[str, Size], values: Values) -> dict[str, list[str]]:
    """Return the columns `holding` and `holding_nonfinite` of a backward pass."""
    known = {name: size.of(values) for name, size in sizes.items()}
    return {
        "holding": sorted(name for name, size in known.items() if size),
        "holding_nonfinite": sorted(
            name for name, size in known.items() if size is not None and not math.isfinite(size)
        ),
    }


def _ratio(now: float | None, before: float | None) -> float | None:
    if not now or not before or not math.isfinite(now) or not math.isfinite(before):
        return None
    return now / before
