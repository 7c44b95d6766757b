"""Optimizer state held in half: which elements a step left as they were, and how they compare with the gradient.

A moment is a decaying average, so every step moves every element that it or the gradient is not zero in. Where it is
half, `beta * v` may round back to v. What is a second moment is seen in its first step: it is the gradient's square but
for a factor, 1 - beta2, whatever the optimizer calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.stats import measurable
from ampdoctor.record.tensors import HALVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HALF_STATE_COLUMNS = ("expected_to_move", "unchanged", "square_cosine", "square_ratio")

_CHUNK = 1 << 22
"""Elements handled at once."""


def half_states(parameter: torch.Tensor, state: Mapping[Any, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the state that is half and has an element for each of the parameter's."""
    for name, value in state.items():
        half = isinstance(value, torch.Tensor) and value.dtype in HALVES
        if half and isinstance(name, str) and value.shape == parameter.shape and measurable(value):
            yield name, value


def half_state_counts(before: torch.Tensor | None, after: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return the numbers of HALF_STATE_COLUMNS as a float64 vector; a state that was not there begins at zero."""
    start = torch.zeros_like(after) if before is None else before
    pieces = [t.detach().reshape(-1).split(_CHUNK) for t in (start, after, gradient)]
    totals = torch.stack([_counts(*piece) for piece in zip(*pieces, strict=True)]).sum(0)
    expected, unchanged, dot, squares, own, sum_squares, sum_own = totals.unbind()
    tiny = torch.finfo(torch.float64).tiny
    cosine = dot / (squares.sqrt() * own.sqrt()).clamp_min(tiny)
    return torch.stack([expected, unchanged, cosine, sum_squares / sum_own.clamp_min(tiny)])


def _counts(before: torch.Tensor, after: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    moves = (gradient != 0) | (before != 0)
    # In FP64: the fourth power of a small gradient is nothing in FP32.
    square, state = gradient.double().square(), after.double()
    numbers = [
        moves.sum(), (moves & (after == before)).sum(), (square * state).sum(), square.square().sum(),
        state.square().sum(), square.sum(), state.abs().sum(),
    ]  # fmt: skip
    return torch.stack([n.double() for n in numbers])
