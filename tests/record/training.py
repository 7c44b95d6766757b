"""Training a tiny model for some steps, and everything that comes out of it to the bit."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.record.models import CLASSES, FEATURES, mlp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = 4
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


@dataclass
class Training:
    """A training loop as people write it; the same seed gives the same numbers."""

    model: Callable[[], nn.Module] = mlp
    optimizer: str = "adam"
    precision: str = "fp32"
    weights: torch.dtype = torch.float32
    accumulate: int = 1
    init_scale: float = 2.0**24
    clip: bool = False
    losses: list[torch.Tensor] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)

    def run(self, steps: int) -> Outcome:
        """Train `steps` steps from the seed and return what came out."""
        seed()
        model = self.model().to(self.weights)
        optimizer = OPTIMIZERS[self.optimizer](model.parameters())
        scaler = torch.amp.GradScaler(
            "cpu", init_scale=self.init_scale, growth_interval=5, enabled=self.precision == "fp16"
        )
        for _ in range(steps):
            self._step(model, optimizer, scaler)
        return Outcome.of(
            losses=self.losses, scales=self.scales, parameters=list(model.parameters()),
            gradients=[p.grad for p in model.parameters()], buffers=list(model.buffers()),
            optimizer=optimizer.state_dict(), scaler=scaler.state_dict(),
        )  # fmt: skip

    def _step(self, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        if self.optimizer == "lbfgs":
            optimizer.step(lambda: self._backward(model, optimizer, scaler))
            return
        optimizer.zero_grad()
        for _ in range(self.accumulate):
            self._backward(model, None, scaler)
        if self.clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        self.scales.append(scaler.get_scale())

    def _backward(
        self, model: nn.Module, optimizer: torch.optim.Optimizer | None, scaler: torch.amp.GradScaler
    ) -> float:
        if optimizer is not None:
            optimizer.zero_grad()
        x = torch.randn(BATCH, FEATURES).to(self.weights)
        target = torch.randint(CLASSES, (BATCH,))
        with autocast(self.precision):
            loss = F.cross_entropy(model(x).float(), target) / self.accumulate
        self.losses.append(loss.detach().clone())
        scaler.scale(loss).backward()
        return float(loss.detach())


def seed() -> None:
    """Seed every generator that a training may draw from."""
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)


def autocast(precision: str) -> contextlib.AbstractContextManager[Any]:
    """Return the autocast context of one of PRECISIONS."""
    dtype = PRECISIONS[precision]
    return contextlib.nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype)


@dataclass(frozen=True)
class Outcome:
    """Every number of a training by the path to it, as bytes, so that -0.0, NaN and NaN's payload count too."""

    bits: dict[str, bytes]

    @classmethod
    def of(cls, **values: Any) -> Outcome:
        """Take the bits of nested `values`, and of the generators as they stand."""
        values["rng"] = [torch.get_rng_state(), repr(np.random.get_state()), repr(random.getstate())]
        return cls(dict(_bits(values, "")))

    def differences(self, other: Outcome) -> list[str]:
        """Return the paths of what is not the same."""
        return sorted(k for k in self.bits.keys() | other.bits.keys() if self.bits.get(k) != other.bits.get(k))


def _bits(value: Any, path: str) -> Iterator[tuple[str, bytes]]:
    if isinstance(value, torch.Tensor):
        plain = value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        yield path, f"{value.dtype} {tuple(value.shape)} ".encode() + plain
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _bits(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _bits(item, f"{path}[{index}]")
    else:
        yield path, repr(value).encode()
