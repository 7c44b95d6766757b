"""Which elements of a half-precision weight an optimizer step meant to move and did not.

`w + u == w` with u != 0 happens where |u| < ulp(w)/2. The intended update u is never seen, but Adam's and SGD's
follow from their state: lr * m / (sqrt(v) + eps), lr * momentum buffer, lr * gradient. Its direction, and so which
elements are meant to move, holds for their relatives too.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOST_UPDATE_COLUMNS = ("expected_to_move", "unchanged", "energy_unchanged", "small_updates", "small_updates_moved")

_CHUNK = 1 << 22
"""Elements handled at once: temporaries take some 40 bytes an element."""

_SURE_SHARE = 0.25
"""Of a last place: below it nothing moves under round-to-nearest, also just above a power of two, where the next
number down is half as far."""


def understood(weights: torch.Tensor, group: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Whether group and state are those of Adam, SGD or a relative: others use the same names for other things."""
    numbers = [group.get(name, 0.0) for name in ("lr", "eps", "weight_decay", "momentum")]
    betas = group.get("betas", (0.0, 0.0))
    if not isinstance(betas, (tuple, list)) or len(betas) != _BETAS:
        return False
    steps = _steps(group, state)
    if not all(_is_number(n) for n in (*numbers, *betas, 0 if steps is None else steps)):
        return False
    moments = [state.get(name) for name in ("exp_avg", "exp_avg_sq", "momentum_buffer")]
    return all(m is None or _has_values_for(m, weights) for m in moments) and (
        (moments[0] is None) == (moments[1] is None)
    )


_BETAS = 2


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, Real)


def _has_values_for(moment: Any, weights: torch.Tensor) -> bool:
    return (
        isinstance(moment, torch.Tensor)
        and moment.is_floating_point()
        and moment.shape == weights.shape
        and moment.device == weights.device
    )


def lost_update_counts(
    before: torch.Tensor,
    after: torch.Tensor,
    gradient: torch.Tensor,
    group: Mapping[str, Any],
    state: Mapping[str, Any],
) -> torch.Tensor:
    """Return the numbers of LOST_UPDATE_COLUMNS as a float64 vector on the weights' device.

    Args:
        before: weights before the step, half precision.
        after: weights after it.
        gradient: their gradient, unscaled.
        group: the parameter group, for lr, betas, eps and weight decay.
        state: the optimizer's state of the parameter, after the step.
    """
    shaped = {name: value for name, value in state.items() if _is_like(value, before)}
    rows = max(1, _CHUNK * len(before) // max(before.numel(), 1)) if before.ndim else 1
    columns = [_split(t, rows) for t in (before, after, gradient, *shaped.values())]
    parts = []
    for w, new, g, *values in zip(*columns, strict=True):
        part_of_state = {**state, **dict(zip(shaped, values, strict=True))}
        parts.append(_counts(w, new, g, group, part_of_state))
    totals = torch.stack(parts).sum(0)
    energy, share = totals[5].clamp_min(torch.finfo(torch.float64).tiny), totals[2:3]
    return torch.cat([totals[:2], share / energy, totals[3:5]])


def _is_like(value: Any, weights: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == weights.shape and weights.ndim > 0


def _split(values: torch.Tensor, size: int) -> Sequence[torch.Tensor]:
    return values.split(size) if values.ndim else (values,)


def _counts(
    before: torch.Tensor,
    after: torch.Tensor,
    gradient: torch.Tensor,
    group: Mapping[str, Any],
    state: Mapping[str, Any],
) -> torch.Tensor:
    """Return those of LOST_UPDATE_COLUMNS for one part, with an energy for a share, and the energy of all."""
    intended = _intended_update(gradient, group, state)
    expected = (intended != 0) & torch.isfinite(intended)
    unchanged = expected & (after == before)
    energy = torch.where(expected, intended, 0.0).double().square()
    small = expected & (_reach(intended, before, group, state) < _SURE_SHARE * _last_place(before))
    numbers = [
        expected.sum(),
        unchanged.sum(),
        torch.where(unchanged, energy, 0.0).sum(),
        small.sum(),
        (small & (after != before)).sum(),
        energy.sum(),
    ]
    return torch.stack([n.double() for n in numbers])


def _intended_update(gradient: torch.Tensor, group: Mapping[str, Any], state: Mapping[str, Any]) -> torch.Tensor:
    lr = group.get("lr", 1.0)
    update: torch.Tensor
    if _is_adam(state):
        mean, square = _moments(group, state)
        update = lr * mean / (square.sqrt() + group.get("eps", 1e-8))
        return update
    momentum = state.get("momentum_buffer")
    direction = (gradient if momentum is None else momentum).float()
    if momentum is not None and group.get("nesterov"):
        direction = gradient.float() + group["momentum"] * direction
    update = lr * direction
    return update


def _reach(
    intended: torch.Tensor, weights: torch.Tensor, group: Mapping[str, Any], state: Mapping[str, Any]
) -> torch.Tensor:
    """Return how far each element may move at most; infinity where this optimizer's updates are not known in size."""
    lr = group.get("lr", 0.0)
    reach = intended.abs()
    if _is_adam(state) and _steps(group, state) is not None:
        # RAdam starts without the division by the spread.
        reach = torch.maximum(reach, lr * _moments(group, state)[0].abs())
    elif state.get("momentum_buffer") is None and "dampening" not in group:
        return torch.full_like(reach, torch.inf)
    decay: torch.Tensor = lr * group.get("weight_decay", 0.0) * weights.float().abs()
    return reach + decay


def _is_adam(state: Mapping[str, Any]) -> bool:
    return state.get("exp_avg") is not None and state.get("exp_avg_sq") is not None


def _steps(group: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
    return state.get("step", group.get("step"))


def _moments(group: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Adam's moments with their start at zero corrected."""
    mean, square = state["exp_avg"].float(), state["exp_avg_sq"].float()
    beta1, beta2 = group.get("betas", (0.0, 0.0))
    steps = _steps(group, state)
    return (mean, square) if steps is None else (mean / (1 - beta1**steps), square / (1 - beta2**steps))


def _last_place(weights: torch.Tensor) -> torch.Tensor:
    """Return the distance from each weight to the next larger one of its format."""
    info = torch.finfo(weights.dtype)
    exponents = torch.frexp(weights.float().abs().clamp_min(info.tiny))[1] - 1
    return torch.ldexp(torch.full_like(weights, info.eps, dtype=torch.float32), exponents)
