"""Small models that `benchmarks.twins` measures: of one step each, which may be slow in half precision on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


def transformer() -> nn.Module:
    """Return a small encoder: 6 layers, 256 wide."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(256, 256))


def cnn() -> nn.Module:
    """Return a small ResNet-like stack."""
    blocks = [
        nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True)) for _ in range(8)
    ]
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *blocks)


def deep_mlp() -> nn.Module:
    """Return many tiny layers, where the cost per hook shows."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(100)])


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "transformer": (transformer, (8, 64, 256)),
    "cnn": (cnn, (8, 3, 32, 32)),
    "deep mlp": (deep_mlp, (64, 64)),
}
