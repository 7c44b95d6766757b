"""More forwards that do nothing but calculate: loops, state of their own, helpers."""

# mypy: ignore-errors

from __future__ import annotations

import functools
import random
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.record.twin.forwards import (
    Attention,
    Block,
    CheckpointedInner,
    Custom,
    Einsum,
    Gpt,
    Inherited,
    Mlp,
    Named,
    Output,
    Residual,
    Structured,
    activate,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.lstm = nn.LSTMCell(8, 8), nn.LSTM(8, 8, batch_first=True)

    def forward(self, x, state=None):
        self.lstm.flatten_parameters()
        x = x.to(next(self.parameters()).dtype)
        x, _ = self.lstm(x)
        if state is None:
            state = (x.new_zeros(x.size(0), 8), torch.zeros_like(x[:, 0]))
        h, c = state
        outputs = []
        for step in range(x.size(1)):
            h, c = self.cell(x[:, step], (h, c))
            outputs.append(h)
        return torch.stack(outputs, dim=1), [o.mean() for o in outputs if o.ndim > 1]


class Zipped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.by_name = nn.ModuleDict({"a": nn.Linear(8, 8)})

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = layer(norm(x))
        for name, layer in self.by_name.items():
            x = layer(x) if name != "b" else x
        for layer in reversed(self.layers[1:]):
            x = layer(x)
        for layer in (self.layers[0], self.by_name["a"]):
            x = layer(x)
        x = functools.reduce(lambda a, b: a + b, [layer(x) for layer in self.layers])
        return sum(layer(x) for layer in self.layers)


class Counting(nn.Module):
    """Changes what it holds itself."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen, self.by_name = 0, [0], {"a": [1]}
        self.cache: Any = None
        self.register_buffer("mean", torch.zeros(8))
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        self.by_name["a"][0] += 1
        self.cache = {}
        self.cache["x"] = x
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.mean[0] = 0
        noise = random.random() * torch.randn_like(x)
        return self.layer(x + noise - self.mean)


class Contexts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act, self.loss = nn.Linear(8, 8), F.gelu, nn.MSELoss()

    def forward(self, x):
        inside = torch.no_grad() if self.training else nullcontext()
        with torch.autocast("cpu", enabled=False), torch.set_grad_enabled(self.training):
            y = self.act(self.layer(x.float()))
        with inside:
            scale = y.detach().abs().max().item()
        try:
            y = y / scale
        except ZeroDivisionError as error:
            raise RuntimeError(f"no scale: {error}") from error
        del scale
        return self.loss(y, x) + nn.L1Loss()(y, x)


class Helpers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.names = nn.Linear(8, 8), ("layer",)
        self.slope = functools.partial(activate, slope=0.2)

    def _one(self, layer, x):
        return activate(layer(x))

    def _deep(self, x, depth):
        return x if depth == 0 else self._deep(self._one(self.layer, x), depth - 1)

    @torch.no_grad()
    def _norm(self, x):
        return max(x.norm().item(), 1.0)

    def forward(self, x):
        if hasattr(self, "layer") and isinstance(x, torch.Tensor):
            x = getattr(self, "layer")(x)  # noqa: B009
        while (depth := int(x.ndim)) > 2:
            x = x.flatten(0, depth - 2)
        x = checkpoint(self._one, self.layer, x, use_reentrant=False)
        return self.slope(self._deep(x, 2)) / self._norm(x)


PURE: dict[str, Callable[[], nn.Module]] = {
    "mlp": Mlp,
    "sequential": lambda: nn.Sequential(Mlp(), nn.GELU(), Mlp()),
    "residual": Residual,
    "residual, downsampled": lambda: Residual(nn.Linear(8, 8)),
    "attention": Attention,
    "block": Block,
    "gpt": Gpt,
    "gpt, checkpointed": lambda: Gpt(checkpointed=True),
    "checkpointed by an inner function": CheckpointedInner,
    "einsum": Einsum,
    "dataclass": lambda: Structured(Output),
    "named tuple": lambda: Structured(Named),
    "dict": lambda: Structured(dict),
    "inherited": Inherited,
    "autograd function": Custom,
    "recurrent": Recurrent,
    "zipped": Zipped,
    "counting": Counting,
    "contexts": Contexts,
    "helpers": Helpers,
    "torch's transformer": lambda: nn.Transformer(8, 2, 1, 1, 8, batch_first=True),
    "torch's transformer, a function": lambda: nn.TransformerEncoderLayer(8, 2, activation=activate),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
    "batch norm": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Flatten()),
    "lstm": lambda: nn.LSTM(8, 8),
    "no forward": lambda: nn.ModuleList([Mlp()]),
}
