"""Models to plan for, small enough to work out by hand or to train on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F

from ampdoctor.record.planning.layouts import LAYOUTS
from ampdoctor.record.planning.optimizers import OPTIMIZERS
from ampdoctor.record.planning.step import Settings, step_memory
from ampdoctor.record.planning.targets import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.planning.result import StepMemory

BATCH = 32
IN, HIDDEN, OUT = 64, 128, 10
PARAMETERS = IN * HIDDEN + HIDDEN + HIDDEN * OUT + OUT
VOCABULARY, TOKENS, WIDTH, BLOCKS = 500, 32, 64, 3


class Classifier(nn.Module):
    """Two layers with a ReLU between them, and cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, OUT)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.second(torch.relu(self.first(x))), y)


def classifier() -> tuple[nn.Module, Callable[[int], Any]]:
    return Classifier(), lambda size: (torch.randn(size, IN), torch.zeros(size, dtype=torch.long))


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        parts = self.qkv(self.norm(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(batch, tokens, 4, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH)))
        return x + self.mlp(x)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A language model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), y.flatten())


def tokens(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(VOCABULARY, (size, TOKENS)), torch.randint(VOCABULARY, (size, TOKENS))


def transformer() -> tuple[nn.Module, Callable[[int], Any]]:
    return Transformer(), tokens


def planned(
    factory: Callable[[], Any] = classifier,
    layout: str = "fp32",
    optimizer: str = "adamw",
    batch: int = BATCH,
    *,
    on_cuda: bool = False,
    world_size: int = 8,
    checkpoint: bool = False,
) -> StepMemory:
    """Return the memory of a planned step."""
    settings = Settings(Target("the model", factory), OPTIMIZERS[optimizer], world_size, on_cuda, checkpoint)
    return step_memory(settings, LAYOUTS[layout], batch)
