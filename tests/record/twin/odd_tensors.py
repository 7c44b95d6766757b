"""Steps whose middle does something unusual with tensors: `ODD` has them all as cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from tests.record.twin import odd_autograd, odd_kinds, odd_storages
from tests.record.twin.loops import vectors
from tests.record.twin.networks import CLASSES, FEATURES, WIDTH, spread
from tests.record.twin.training import Case, Training, named

if TYPE_CHECKING:
    from tests.record.twin.odd_storages import Middle


class Around(nn.Module):
    """A layer, the odd middle, a layer; the middle gets (8, 32) and gives (8, 32).

    A middle may keep tensors from step to step in `kept`, and use the weight of `extra`.
    """

    def __init__(self, middle: Middle) -> None:
        super().__init__()
        self.middle = middle
        self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.extra = nn.Linear(WIDTH, WIDTH)
        self.kept: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        middle = self.middle(hidden, self.extra, self.kept)
        logits: torch.Tensor = self.last(self.extra(middle.tanh()))
        return logits


def odd(middle: Middle) -> Case:
    """Return the case with `middle` in the middle."""

    def build(seed: int) -> Training:
        model = Around(middle)
        spread(model)

        def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(model(x), target)

        return Training(seed, named(model), vectors, loss)

    return Case(middle.__name__.replace("_", "-"), build)


def sparse_embedding(seed: int) -> Training:
    """Gradients are sparse tensors with an index for each use of a row."""
    embed, head = nn.Embedding(24, WIDTH, sparse=True), nn.Linear(WIDTH, CLASSES)
    spread(head)

    def loss(tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(head(embed(tokens).tanh().mean(1)), target)

    def batch(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        tokens = torch.randint(12, (8, 6), generator=generator)
        return tokens, torch.randint(CLASSES, (8,), generator=generator)

    return Training(seed, named(embed, head), batch, loss)


ODD = (
    *(odd(middle) for middle in odd_storages.MIDDLES),
    *(odd(middle) for middle in odd_kinds.MIDDLES),
    *(odd(middle) for middle in odd_autograd.MIDDLES),
    Case("sparse-embedding", sparse_embedding),
)
