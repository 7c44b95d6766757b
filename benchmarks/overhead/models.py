"""The three models that are trained: a transformer, a convolutional network, and very many tiny layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LAYERS, WORDS, LENGTH = 384, 6, 6, 5000, 128


class Block(nn.Module):
    """Attention and a feed-forward part, each added to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        rows, length, _ = x.shape
        parts = self.queries(self.before_attention(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixed(attended.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.feed(self.before_feed(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A language model like GPT-2, of 14.5 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of each place's next word: (rows times places, words)."""
        places = torch.arange(x.shape[1], device=x.device)
        hidden = self.blocks(self.words(x) + self.places(places))
        return self.head(self.norm(hidden)).flatten(0, 1)  # type: ignore[no-any-return]


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.second, self.second_norm = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.middle, self.last = nn.ReLU(), nn.ReLU()
        same = stride == 1 and channels == out
        around = [] if same else [nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)]
        self.around = nn.Sequential(*around)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        inner = self.middle(self.first_norm(self.first(x)))
        return self.last(self.second_norm(self.second(inner)) + self.around(x))  # type: ignore[no-any-return]


def transformer() -> nn.Module:
    """Return the language model."""
    return Transformer()


def cnn() -> nn.Module:
    """Return a ResNet-18 for images of 32 by 32: 11.2 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    channels = 64
    for stage in range(4):
        out = 64 << stage
        layers += [Residual(channels, out, 2 if stage else 1), Residual(out, out, 1)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def mlp() -> nn.Module:
    """Return 200 linear layers of 64 by 64, where the cost of each hook shows."""
    layers: list[nn.Module] = []
    for _ in range(200):
        linear = nn.Linear(64, 64)
        nn.init.kaiming_normal_(linear.weight)  # keeps values and gradients alive through 200 layers
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers)
