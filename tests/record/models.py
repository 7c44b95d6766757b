"""Tiny models, each with one habit of real ones that has broken somebody's hooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

FEATURES = 8
CLASSES = 4


def mlp() -> nn.Sequential:
    """An in-place ReLU overwrites its input, the output of the layer before."""
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(16, CLASSES))


class ConvNet(nn.Module):
    """Conv-BN-ReLU(inplace), where full backward hooks raise."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, (0, 8)).reshape(-1, 1, 4, 4)
        return torch.as_tensor(self.head(self.body(x).flatten(1)))


class Residual(nn.Module):
    """`y += x` changes a module's output after its hook has seen it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y += x
        return torch.as_tensor(self.second(y))


class Transformer(nn.Module):
    """Attention with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(FEATURES, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.layer(x[:, None, :].expand(-1, 3, -1)).mean(1)))


class Recurrent(nn.Module):
    """A GRU returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(2, 6, batch_first=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(x.reshape(len(x), 4, 2))
        return torch.as_tensor(self.head(states[:, -1]))


class Tied(nn.Module):
    """Two modules share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES, bias=False)
        self.second = nn.Linear(FEATURES, FEATURES, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.second(torch.tanh(self.first(x)))[:, :CLASSES])


class Checkpointed(nn.Module):
    """The middle is computed a second time in the backward pass, with its dropout."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first, self.last = nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES)
        self.middle = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.middle, self.first(x), use_reentrant=self.reentrant)
        return torch.as_tensor(self.last(x))


@dataclass
class Output:
    """What Hugging Face's models return."""

    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    loss: torch.Tensor | None = None


class _Many(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, FEATURES)
        self.seen = 0

    def forward(self, x: torch.Tensor, kind: str) -> Any:
        y = self.linear(x)
        z = torch.tanh(y)
        return {
            "dataclass": Output(z, (y,)), "dict": {"out": z, "aux": [y]}, "tuple": (z, None, 3), "none": None,
        }[kind]  # fmt: skip


class ManyOutputs(nn.Module):
    """One module, called four times in a step, returns a dataclass, a dict, a tuple and None."""

    def __init__(self) -> None:
        super().__init__()
        self.many, self.head = _Many(), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.many(x, kind="dataclass").logits
        x = self.many(x, kind="dict")["out"]
        x = self.many(x, "tuple")[0]
        assert self.many(x, "none") is None
        return torch.as_tensor(self.head(x))
