"""Which elements of a half-precision weight an optimizer step meant to move and did not.

`w + u == w` with u != 0 happens where |u| < ulp(w)/2. The intended update u is never seen, but Adam's and SGD's
follow from their state: lr * m / (sqrt(v) + eps), lr * momentum buffer, lr * gradient. Its direction, and so which
elements are meant to move, holds for their relatives too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

LOST_UPDATE_COLUMNS = (
    "expected_to_move",
    "unchanged",
    "energy_unchanged",
    "small_updates",
    "small_updates_moved",
)

_SURE_SHARE = 0.25
"""Of a last place: below it nothing moves under round-to-nearest, also just above a power of two, where the next
number down is half as far."""


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
    intended = _intended_update(gradient, group, state)
    expected = (intended != 0) & torch.isfinite(intended)
    unchanged = expected & (after == before)
    energy = torch.where(expected, intended, 0.0).double().square()
    decay = group.get("lr", 0.0) * group.get("weight_decay", 0.0) * before.float().abs()
    small = expected & ((intended.abs() + decay) < _SURE_SHARE * _last_place(before))
    numbers = [
        expected.sum(),
        unchanged.sum(),
        torch.where(unchanged, energy, 0.0).sum()
        / energy.sum().clamp_min(torch.finfo(torch.float64).tiny),
        small.sum(),
        (small & (after != before)).sum(),
    ]
    return torch.stack([n.double() for n in numbers])


def _intended_update(
    gradient: torch.Tensor, group: Mapping[str, Any], state: Mapping[str, Any]
) -> torch.Tensor:
    lr = group.get("lr", 1.0)
    update: torch.Tensor
    if "exp_avg" in state and "exp_avg_sq" in state:
        beta1, beta2 = group.get("betas", (0.0, 0.0))
        step = state.get("step", 1)
        mean = state["exp_avg"].float() / (1 - beta1**step)
        spread = (state["exp_avg_sq"].float() / (1 - beta2**step)).sqrt()
        update = lr * mean / (spread + group.get("eps", 1e-8))
        return update
    momentum = state.get("momentum_buffer")
    update = lr * (gradient if momentum is None else momentum).float()
    return update


def _last_place(weights: torch.Tensor) -> torch.Tensor:
    """Return the distance from each weight to the next larger one of its format."""
    info = torch.finfo(weights.dtype)
    exponents = torch.frexp(weights.float().abs().clamp_min(info.tiny))[1] - 1
    return torch.ldexp(torch.full_like(weights, info.eps, dtype=torch.float32), exponents)
