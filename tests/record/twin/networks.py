"""The models of the cases, tiny, and wide enough that what is flushed has a distribution."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

FEATURES, WIDTH, CLASSES, BATCH = 16, 32, 8, 8
VOCABULARY, LENGTH = 24, 6


def spread(model: nn.Module) -> nn.Module:
    """Give the inputs of each layer weights of very different size: gradients then span as many binades as in life."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                shape = [1, -1] + [1] * (parameter.ndim - 2)
                parameter.mul_(torch.exp2(-8 * torch.rand(parameter.shape[1])).view(shape))
    return model


def mlp() -> nn.Module:
    """Three layers."""
    return nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.Tanh(),
        nn.Linear(WIDTH, CLASSES),
    )  # fmt: skip


def cnn() -> nn.Module:
    """Conv, BatchNorm, ReLU in place, pooling."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES),
    )  # fmt: skip


class Transformer(nn.Module):
    """An encoder with dropout over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.triu(torch.full((LENGTH, LENGTH), float("-inf")), diagonal=1)
        logits: torch.Tensor = self.head(self.encoder(self.embed(tokens), mask=mask))
        return logits.flatten(0, 1)


class Recurrent(nn.Module):
    """Two layers of LSTM or GRU."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.cells = kind(FEATURES, WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.cells(x)
        logits: torch.Tensor = self.head(states[:, -1])
        return logits


class Vit(nn.Module):
    """Patches by a strided convolution, a class token, pre-norm attention by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.position = nn.Parameter(0.02 * torch.randn(1, 5, WIDTH))
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.position
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        attention = ((q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5).softmax(-1)
        x = x + self.out((attention @ v).transpose(1, 2).flatten(2))
        x = x + self.mlp(self.norms[1](x))
        logits: torch.Tensor = self.head(self.norms[2](x)[:, 0])
        return logits


class Tied(nn.Module):
    """The decoder's weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))
        self.decoder = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.decoder.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.decoder(self.body(self.embed(tokens)))
        return logits.flatten(0, 1)


class Checkpointed(nn.Module):
    """Two blocks with dropout are computed a second time in the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.2)) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        logits: torch.Tensor = self.last(x)
        return logits


class Island(nn.Module):
    """A normalisation that somebody has kept in FP32 by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        with torch.autocast("cpu", enabled=False):
            x = self.inner(x.float()).exp()
            x = x / x.square().mean(-1, keepdim=True).add(1e-6).sqrt()
        logits: torch.Tensor = self.last(F.gelu(x))
        return logits


class TwoHeads(nn.Module):
    """One body, a classifier and a reconstruction."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.GELU())
        self.classify, self.rebuild = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, FEATURES)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(x)
        return self.classify(hidden), self.rebuild(hidden)
