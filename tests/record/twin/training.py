"""One training step in the user's fashion, in any setting, with somebody looking on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tests.record.twin.setting import Scaling, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

Batch = tuple[torch.Tensor, ...]
Parameters = dict[str, torch.nn.Parameter]


class Observer:
    """Who is told of a step while it runs; this one does nothing."""

    def during(self) -> contextlib.AbstractContextManager[object]:
        """Return what is active during forward and backward; a GAN's step enters it twice."""
        return contextlib.nullcontext()

    def before_optimizer(self, optimizer: torch.optim.Optimizer, parameters: Parameters) -> None:
        """Take the gradients, still scaled, of the parameters of `optimizer`; `during` is still active."""

    def after_optimizer(self, optimizer: torch.optim.Optimizer, parameters: Parameters) -> None:
        """See the weights that `optimizer` has just updated, unless its step was skipped."""


class Training:
    """A model with its optimizer and its data; step n has the same batch in every setting."""

    def __init__(
        self,
        seed: int,
        parameters: Parameters,
        batch: Callable[[torch.Generator], Batch],
        loss: Callable[..., torch.Tensor],
    ) -> None:
        self.seed, self.parameters, self.batch, self.loss = seed, parameters, batch, loss
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
            [p for p in parameters.values() if p.requires_grad], lr=0.05
        )
        self.steps = 0
        self._scalings: dict[Setting, Scaling] = {}

    def run_step(self, setting: Setting, observer: Observer | None = None) -> list[torch.Tensor]:
        """Run one step and return its losses, unscaled."""
        observer = observer or Observer()
        self.adopt(setting)
        batch, scaling = self.next_batch(), self.scaling(setting)
        self.optimizer.zero_grad()
        with observer.during():
            losses = self.forward_backward(setting, scaling, batch)
            observer.before_optimizer(self.optimizer, self.parameters)
        scaling.step(self.optimizer)
        observer.after_optimizer(self.optimizer, self.parameters)
        scaling.update()
        return [loss.detach() for loss in losses]

    def forward_backward(self, setting: Setting, scaling: Scaling, batch: Batch) -> list[torch.Tensor]:
        """Run what is between zero_grad and the optimizer."""
        with setting.autocast():
            loss = self.loss(*batch)
        scaling.backward(loss)
        return [loss]

    def adopt(self, setting: Setting) -> None:
        """Bring the model into the setting; autocast needs nothing."""

    def next_batch(self) -> Batch:
        """Return the batch of the step that begins."""
        self.steps += 1
        return self.batch(torch.Generator().manual_seed(1000 * self.seed + self.steps))

    def scaling(self, setting: Setting) -> Scaling:
        """Return the scaler of a setting, which lives on from step to step."""
        return self._scalings.setdefault(setting, Scaling(setting))


@dataclass(frozen=True)
class Case:
    """A training by name; `start(seed)` gives the same weights and generator state each time."""

    name: str
    build: Callable[[int], Training]
    halves: tuple[torch.dtype, ...] = (torch.float16, torch.bfloat16)  # what torch can run it in on a CPU

    def __str__(self) -> str:
        return self.name

    def start(self, seed: int) -> Training:
        """Build the training and leave the generators as they are at the begin of its first step."""
        torch.manual_seed(seed)
        training = self.build(seed)
        torch.manual_seed(seed + 1)
        return training


def named(*modules: torch.nn.Module) -> Parameters:
    """Return the parameters of `modules` by name, a shared one once; several are told apart by number."""
    if len(modules) == 1:
        return dict(modules[0].named_parameters())
    return {f"{i}.{n}": p for i, m in enumerate(modules) for n, p in m.named_parameters()}
