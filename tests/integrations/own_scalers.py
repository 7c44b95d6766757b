"""Stand-ins for scalers of DeepSpeed, Megatron and Apex, with the attributes that these have, on the CPU.

They are trained by frameworks of which nothing is installed here: what counts is when they scale, skip, and change
their scale, and where they keep it.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


def overflown(optimizer: torch.optim.Optimizer) -> bool:
    return not all(bool(g.isfinite().all()) for g in gradients(optimizer))


def gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def divide(optimizer: torch.optim.Optimizer, scale: Any) -> None:
    for gradient in gradients(optimizer):
        gradient.div_(scale)


class ZeroScaler:
    """As DynamicLossScaler of DeepSpeed."""

    def __init__(self, scale: float, dynamic: bool = True) -> None:
        self.cur_scale, self.dynamic = scale, dynamic
        self.scale_factor, self.scale_window = 2.0, 1000

    def update_scale(self, overflow: bool) -> None:
        if overflow and self.dynamic:
            self.cur_scale /= self.scale_factor


class ZeroOptimizer:
    """As the optimizers of DeepSpeed's ZeRO: no torch.optim.Optimizer, but around one."""

    def __init__(self, optimizer: torch.optim.Optimizer, scale: float, *, dynamic: bool = True) -> None:
        self.optimizer = optimizer
        self.loss_scaler = ZeroScaler(scale, dynamic)
        self.dynamic_loss_scale, self.overflow = dynamic, False

    @property
    def loss_scale(self) -> float:
        return self.loss_scaler.cur_scale

    def backward(self, loss: torch.Tensor) -> None:
        (loss.float() * self.loss_scale).backward()

    def _update_scale(self, overflow: bool) -> None:
        self.loss_scaler.update_scale(overflow)

    def step(self) -> None:
        self.overflow, scale = overflown(self.optimizer), self.loss_scale
        self._update_scale(self.overflow)
        if not self.overflow:
            divide(self.optimizer, scale)
            self.optimizer.step()
        self.optimizer.zero_grad()


class FusedOptimizer:
    """As DeepSpeed's FP16_Optimizer, which keeps its scale in a configuration."""

    def __init__(self, optimizer: torch.optim.Optimizer, scale: float) -> None:
        self.optimizer, self.overflow = optimizer, False
        self.loss_scale_config = SimpleNamespace(
            cur_scale=scale, dynamic_loss_scale=True, scale_factor=2.0, scale_window=1000
        )

    @property
    def loss_scale(self) -> float:
        scale: float = self.loss_scale_config.cur_scale
        return scale

    def backward(self, loss: torch.Tensor) -> None:
        (loss.float() * self.loss_scale).backward()

    def _update_scale(self, skip: bool) -> None:
        self.loss_scale_config.cur_scale /= 2.0 if skip else 1.0

    def step(self) -> None:
        self.overflow = overflown(self.optimizer)
        if not self.overflow:
            divide(self.optimizer, self.loss_scale)
            self.optimizer.step()
        self._update_scale(self.overflow)
        self.optimizer.zero_grad()


class MegatronScaler:
    """As DynamicGradScaler of Megatron: a scale that is replaced, not changed."""

    def __init__(self, scale: float, dynamic: bool = True) -> None:
        self.scale = torch.tensor([scale])
        self.backoff_factor = torch.tensor([0.5 if dynamic else 1.0])
        if dynamic:
            self.growth_factor, self.growth_interval = torch.tensor([2.0]), 1000

    def update(self, found_inf: bool) -> None:
        if found_inf:
            self.scale = self.scale * self.backoff_factor


class MegatronOptimizer:
    """As MixedPrecisionOptimizer of Megatron."""

    def __init__(self, optimizer: torch.optim.Optimizer, scale: float, *, dynamic: bool = True) -> None:
        self.optimizer, self.grad_scaler = optimizer, MegatronScaler(scale, dynamic)

    def get_loss_scale(self) -> torch.Tensor:
        return self.grad_scaler.scale

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        return self.get_loss_scale() * loss

    def backward(self, loss: torch.Tensor) -> None:
        self.scale_loss(loss).sum().backward()

    def prepare_grads(self) -> bool:
        overflow, scale = overflown(self.optimizer), self.grad_scaler.scale
        divide(self.optimizer, scale)
        self.grad_scaler.update(overflow)
        return overflow

    def step(self) -> tuple[bool, float | None, int | None]:
        overflow = self.prepare_grads()
        if not overflow:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return not overflow, None, None


class ChainedOptimizer(MegatronOptimizer):
    """As Megatron's optimizer of several, which does not call their `step`."""

    def __init__(self, optimizer: torch.optim.Optimizer, scale: float) -> None:
        self.chained_optimizers = [MegatronOptimizer(optimizer, scale)]
        self.grad_scaler = self.chained_optimizers[0].grad_scaler
        self._first = self.chained_optimizers[0].optimizer

    def prepare_grads(self) -> bool:
        return max(one.prepare_grads() for one in self.chained_optimizers)

    def step(self) -> tuple[bool, float | None, int | None]:
        overflow = self.prepare_grads()
        if not overflow:
            self._first.step()
        self._first.zero_grad()
        return not overflow, None, None


class ApexScaler:
    """As LossScaler of Apex."""

    def __init__(self, scale: float) -> None:
        self._loss_scale, self._scale_seq_len, self.dynamic = scale, 2000, True
        self._has_overflow = False

    def loss_scale(self) -> float:
        return self._loss_scale

    def clear_overflow_state(self) -> None:
        self._has_overflow = False

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        self._has_overflow = overflown(optimizer)
        divide(optimizer, self._loss_scale)

    def update_scale(self) -> bool:
        if self._has_overflow:
            self._loss_scale /= 2.0
        return self._has_overflow


class ApexLoop:
    """As `amp.scale_loss` and what it does to an optimizer: after an overflow the next `step` is another function."""

    def __init__(self, optimizer: torch.optim.Optimizer, scale: float) -> None:
        self._optimizer, self.scaler = optimizer, ApexScaler(scale)

    @property
    def loss_scale(self) -> float:
        return self.scaler.loss_scale()

    @contextmanager
    def _scaled(self, loss: torch.Tensor) -> Iterator[torch.Tensor]:
        yield loss.float() * self.scaler.loss_scale()
        self.scaler.clear_overflow_state()
        self.scaler.unscale(self._optimizer)
        if self.scaler.update_scale():
            vars(self._optimizer)["step"] = lambda: vars(self._optimizer).pop("step")

    def backward(self, loss: torch.Tensor) -> None:
        with self._scaled(loss) as scaled:
            scaled.backward()

    def step(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()
