"""Forwards as users write them that do nothing but calculate."""

# mypy: ignore-errors

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SCALE = 0.5
SIZES = (8, 8)


def activate(x, slope=0.1):
    return F.leaky_relu(x, slope) if slope else x.relu()


class Mlp(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, width), nn.Linear(width, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.last(self.drop(F.relu(self.first(x))))


class Residual(nn.Module):
    def __init__(self, down: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.norm, self.down = Mlp(), nn.BatchNorm1d(8), down

    def forward(self, x):
        identity = x
        if self.down is not None:
            identity = self.down(x)
        out = self.norm(self.body(x))
        out += identity
        return torch.relu_(out)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = 2
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.register_buffer("mask", torch.ones(16, 16).tril().bool())

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in (q, k, v))
        if mask is None:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
            scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
            y = F.softmax(scores, dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).contiguous().view(b, t, d))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(), Mlp()
        self.norms = nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(8)])

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, layers: int = 3, checkpointed: bool = False) -> None:
        super().__init__()
        self.config = SimpleNamespace(layers=layers, checkpointed=checkpointed, length=16)
        self.parts = nn.ModuleDict({
            "embed": nn.Embedding(8, 8), "position": nn.Embedding(16, 8), "norm": nn.LayerNorm(8),
        })  # fmt: skip
        self.blocks = nn.ModuleList([Block() for _ in range(layers)])
        self.head = nn.Linear(8, 8, bias=False)
        self.head.weight = self.parts["embed"].weight

    def forward(self, tokens, targets=None):
        device = tokens.device
        _, t = tokens.size()
        assert t <= self.config.length, f"{t} tokens are too many for {self.config.length}"
        if t == 0:
            raise ValueError("no tokens")
        x = self.parts["embed"](tokens) + self.parts["position"](torch.arange(t, device=device))
        states = []
        for number, block in enumerate(self.blocks):
            if self.config.checkpointed and self.training:
                x = checkpoint(block, x, use_reentrant=False)
                states.append(x)
            else:
                x = block(x)
            if number % 2:
                states.append(x)
        logits = self.head(self.parts.norm(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return {"logits": logits, "loss": loss, "states": tuple(states)}


class CheckpointedInner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Mlp(), Mlp())

    def forward(self, x):
        def custom(*inputs):
            return self.layers(*inputs)

        y = checkpoint(custom, x, use_reentrant=False)
        return checkpoint(lambda z: self.layers(z) * SCALE, y, use_reentrant=False)


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*SIZES))

    def forward(self, x):
        x = torch.einsum("...i,ij->...j", x, self.weight)
        x = torch.where(x > 0, x, x.abs().log1p())
        x[x > 3] = 3.0
        y = x.clone()
        y[0] = 0
        y[:, 1] += 1
        return F.dropout(y, 0.1, self.training)


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] | None = None
    more: dict[str, Any] = field(default_factory=dict)


class Named(NamedTuple):
    logits: torch.Tensor
    loss: torch.Tensor | None = None


class Structured(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(8, 8)

    def forward(self, x, return_dict=True):
        logits = self.layer(x)
        result = self.kind(logits=logits)
        ordered = OrderedDict(a=x)
        ordered["b"] = logits
        return result if return_dict else (logits, *ordered.values())


class Scaling:
    """A mixin."""

    _scale = 1.0

    @property
    def scale(self):
        return SCALE * self._scale

    @staticmethod
    def twice(x):
        return 2 * x

    @classmethod
    def smaller(cls, x):
        return cls.twice(x) / 4


class Inherited(Scaling, Mlp):
    _scale = 2.0

    def forward(self, x, *rest, **options):
        return self.smaller(self.twice(super().forward(x) * self.scale))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return scale * x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return (2 * ctx.scale * x * gradient if ctx.needs_input_grad[0] else None), None


class Apart(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


class Custom(nn.Module):
    def forward(self, x):
        return Apart.apply(Square.apply(x, SCALE))
