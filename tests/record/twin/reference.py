"""The truth that twins are judged by: real runs of the same step in other settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from tests.record.twin.training import Observer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.record.twin.setting import Setting
    from tests.record.twin.training import Case, Parameters


@dataclass
class RealStep(Observer):
    """What one real step came to; gradients are those accumulated right before unscaling, as dense tensors.

    Where a step has several optimizers, the later halves depend on what the earlier optimizers did. Twins have
    the run's own updated weights there: `follow` gives a real run in another setting the same.
    """

    follow: Mapping[str, torch.Tensor] = field(default_factory=dict)
    losses: list[torch.Tensor] = field(default_factory=list)
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    updated: dict[str, torch.Tensor] = field(default_factory=dict)

    def before_optimizer(self, optimizer: torch.optim.Optimizer, parameters: Parameters) -> None:
        """Copy the gradients."""
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                gradient = parameter.grad.detach().clone()
                self.gradients[name] = gradient.to_dense() if gradient.is_sparse else gradient

    @torch.no_grad()
    def after_optimizer(self, optimizer: torch.optim.Optimizer, parameters: Parameters) -> None:
        """Copy the updated weights, or put those of the run that is followed in their place."""
        for name, parameter in parameters.items():
            if name in self.follow:
                parameter.copy_(self.follow[name])
            self.updated[name] = parameter.detach().clone()


def real_step(
    case: Case,
    setting: Setting,
    seed: int = 0,
    *,
    steps_before: int = 0,
    before: Setting | None = None,
    follow: Mapping[str, torch.Tensor] | None = None,
) -> RealStep:
    """Run a step of `case` in `setting`, after `steps_before` steps in the setting `before` (the same one if None)."""
    training = case.start(seed)
    for _ in range(steps_before):
        training.run_step(before or setting)
    step = RealStep(follow or {})
    step.losses = training.run_step(setting, step)
    return step


def real_gradients(
    case: Case,
    setting: Setting,
    seed: int = 0,
    steps_before: int = 0,
    *,
    before: Setting | None = None,
    follow: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, torch.Tensor]:
    """Return the gradients of `real_step` by parameter; one without a gradient is left out."""
    step = real_step(
        case, setting, seed, steps_before=steps_before, before=before, follow=follow
    )  # fmt: skip
    return step.gradients


def flushed_truth(case: Case, setting: Setting, seed: int = 0, *, steps_before: int = 0) -> dict[str, tuple[int, int]]:
    """Return by parameter how many elements are zero in `setting` and not in FP32, and how many FP32 has nonzero."""
    run = real_step(case, setting, seed, steps_before=steps_before)
    full = real_gradients(case, setting.to(None), seed, steps_before, before=setting, follow=run.updated)
    return {
        name: (int(((run.gradients[name] == 0) & (gradient != 0)).sum()), int(gradient.count_nonzero()))
        for name, gradient in full.items()
    }
