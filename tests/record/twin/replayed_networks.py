"""Networks whose steps are executed again: with all that a module may keep, draw and change in its forward."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES = 4
WIDTH = 8


class Counting(nn.Module):
    """Keeps all kinds of things of its own, and draws from every generator without an effect on its result."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True))
        self.out = nn.Linear(16, CLASSES)
        self.calls = 1000
        self.seen: list[int] = []
        self.by_name: dict[str, int] = {}
        self.mean = torch.zeros(16)
        self.own = torch.Generator()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.steps: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(self.calls)
        self.by_name[f"call {self.calls}"] = self.calls
        self.steps = self.steps + 1
        self.last = self.inner(x)
        self.mean.mul_(0.9).add_(self.last.detach().float().mean(0), alpha=0.1)
        torch.rand((), generator=self.own)
        random.random()
        np.random.rand()
        out: torch.Tensor = self.out(self.last)
        return out


class LayerDrop(nn.Module):
    """Leaves layers out by lot, from generators outside torch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(6)])
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            lot = random.random() if number % 2 else np.random.rand()
            if lot < 0.5:
                x = layer(x)
        out: torch.Tensor = self.out(x)
        return out


class Transformer(nn.Module):
    """Tokens are the sign of the features; checkpointed in one of both ways, or not."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.embedding = nn.Embedding(2, 16)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2)])
        self.out = nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding((x > 0).long())
        for layer in self.layers:
            if self.reentrant is None:
                hidden = layer(hidden)
            else:
                hidden = checkpoint(layer, hidden, use_reentrant=self.reentrant)
        out: torch.Tensor = self.out(hidden[:, -1])
        return out


@dataclass
class Predicted:
    logits: torch.Tensor
    hidden: torch.Tensor


class Structured(nn.Module):
    """Returns a dict or a dataclass."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind
        self.body, self.head = nn.Linear(WIDTH, 16), nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.body(x).tanh()
        return self.kind(logits=self.head(hidden), hidden=hidden)


class Stopping(nn.Module):
    """Fails when asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES)
        self.asked: dict[str, bool] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.asked.get("fail"):
            raise ValueError("no more")
        out: torch.Tensor = self.layer(x)
        return out


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(16, CLASSES)
    )  # fmt: skip


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, WIDTH // 2)), nn.Conv2d(1, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
        nn.Dropout2d(0.2), nn.Flatten(), nn.Linear(60, CLASSES),
    )  # fmt: skip


def spectral() -> nn.Module:
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, 16))
    return nn.Sequential(normed, nn.Tanh(), nn.Linear(16, CLASSES))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "cnn": cnn,
    "spectral norm": spectral,
    "counting": Counting,
    "layer drop": LayerDrop,
    "transformer": Transformer,
    "checkpointed": lambda: Transformer(reentrant=False),
    "checkpointed, reentrant": lambda: Transformer(reentrant=True),
    "dict": lambda: Structured(dict),
    "dataclass": lambda: Structured(Predicted),
}
