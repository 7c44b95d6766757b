"""Zeros that nothing has flushed: at a healthy scale FP16 has them where FP32 has them, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from tests.record.twin.loops import vectors
from tests.record.twin.networks import BATCH, CLASSES, FEATURES, LENGTH, VOCABULARY, WIDTH
from tests.record.twin.setting import Setting
from tests.record.twin.training import Case, Training, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.twin.training import Batch

HEALTHY = Setting(torch.float16, 2.0**12)
_SHAPES = (FEATURES, WIDTH), (WIDTH, WIDTH), (WIDTH, CLASSES)


def relu(seed: int) -> Training:
    """A quarter of the units is dead."""
    first, last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
    with torch.no_grad():
        first.bias[::4] = -100.0
    return _classifier(seed, nn.Sequential(first, nn.ReLU(inplace=True), last))


def dropout(seed: int) -> Training:
    """With two samples a quarter of the units is dropped for both."""
    model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, CLASSES))
    return _classifier(seed, model, lambda g: tuple(b[:2] for b in vectors(g)))


def max_pool(seed: int) -> Training:
    """A unit that loses the maximum for both samples gets no gradient."""
    head = nn.Linear(WIDTH // 4, CLASSES)
    model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.MaxPool1d(4), head)
    return _classifier(seed, model, lambda g: tuple(b[:2] for b in vectors(g)))


def padding(seed: int) -> Training:
    """Sequences end early: the embedding's padding row and the positions behind the ends get nothing."""
    embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
    position, head = nn.Parameter(torch.randn(LENGTH, WIDTH)), nn.Linear(WIDTH, CLASSES)

    def loss(tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        valid = (tokens != 0).unsqueeze(-1)
        hidden = F.gelu(embed(tokens) + position) * valid
        return F.cross_entropy(head(hidden.sum(1) / valid.sum(1)), target)

    def batch(generator: torch.Generator) -> Batch:
        tokens, target = _tokens(generator)
        tokens[:, LENGTH // 2 :] = 0
        return tokens, target

    parameters = {**named(embed, head), "position": position}
    return Training(seed, parameters, batch, loss)


def untouched_rows(seed: int) -> Training:
    """Most of the vocabulary is not in the batch."""
    embed, head = nn.Embedding(8 * VOCABULARY, WIDTH), nn.Linear(WIDTH, CLASSES)

    def loss(tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(head(F.gelu(embed(tokens)).mean(1)), target)

    return Training(seed, named(embed, head), _tokens, loss)


def ignored_targets(seed: int) -> Training:
    """Classes that are never right have gradients, samples that are ignored have none."""
    model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    scale = nn.Parameter(torch.ones(BATCH, 1))

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        target = target.masked_fill(torch.arange(len(target)) % 2 == 0, -100)
        return F.cross_entropy(model(x * scale), target, ignore_index=-100)

    return Training(seed, {**named(model), "scale": scale}, vectors, loss)


def lora(seed: int) -> Training:
    """B is zero at first, so that A's gradient is; the base is frozen."""
    base = nn.Linear(FEATURES, CLASSES).requires_grad_(requires_grad=False)
    parameters = {"a": nn.Parameter(torch.randn(4, FEATURES)), "b": nn.Parameter(torch.zeros(CLASSES, 4))}

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        low = F.linear(F.linear(x, parameters["a"]), parameters["b"])
        return F.cross_entropy(base(x) + low, target)

    return Training(seed, parameters, vectors, loss)


def zero_branch(seed: int) -> Training:
    """A residual branch ends in a layer of zeros, another one in a gain of zero."""
    one, two = _branch(), _branch()
    head, gain = nn.Linear(FEATURES, CLASSES), nn.Parameter(torch.zeros(FEATURES))
    with torch.no_grad():
        for name, parameter in one.named_parameters():
            if name.startswith("2."):
                parameter.zero_()

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = x + one(x)
        return F.cross_entropy(head(x + gain * two(x)), target)

    return Training(seed, {**named(one, two, head), "gain": gain}, vectors, loss)


def _branch() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.GELU(), nn.Linear(WIDTH, FEATURES))


def frozen(seed: int) -> Training:
    """The first layer is not trained, and a hook masks half of the second one's gradient."""
    first, second, last = (nn.Linear(*shape) for shape in _SHAPES)
    first.requires_grad_(requires_grad=False)
    mask = (torch.arange(WIDTH) % 2).view(-1, 1)
    second.weight.register_hook(lambda gradient: gradient * mask)
    return _classifier(seed, nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last))


def masked_attention(seed: int) -> Training:
    """Keys behind a sample's end are masked with -inf, as is the future; no key bias, whose gradient is only noise."""
    embed, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, CLASSES)
    qkv, position = (nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Parameter(torch.randn(LENGTH, WIDTH)))

    def loss(tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        q, k, v = qkv(embed(tokens) + position).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) * WIDTH**-0.5
        order = torch.arange(LENGTH)
        scores = scores.masked_fill(order[None, :] > order[:, None], float("-inf"))
        scores = scores.masked_fill(order >= LENGTH - 2, float("-inf"))
        mixed = scores.softmax(-1) @ v
        return F.cross_entropy(head(mixed[:, LENGTH // 2]), target)

    return Training(seed, {**named(embed, head, qkv), "position": position}, _tokens, loss)


def fused_attention(seed: int) -> Training:
    """scaled_dot_product_attention with a causal mask, read in the middle."""
    embed, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, CLASSES)
    qkv, position = (nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Parameter(torch.randn(LENGTH, WIDTH)))

    def loss(tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        q, k, v = qkv(embed(tokens) + position).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.cross_entropy(head(mixed[:, :, LENGTH // 2].flatten(1)), target)

    return Training(seed, {**named(embed, head, qkv), "position": position}, _tokens, loss)


def _classifier(seed: int, model: nn.Module, batch: Callable[[torch.Generator], Batch] = vectors) -> Training:
    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), target)

    return Training(seed, named(model), batch, loss)


def _tokens(generator: torch.Generator) -> Batch:
    tokens = torch.randint(1, VOCABULARY, (BATCH, LENGTH), generator=generator)
    return tokens, torch.randint(CLASSES, (BATCH,), generator=generator)


STRUCTURAL = tuple(
    Case(build.__name__.replace("_", "-"), build)
    for build in (
        relu, dropout, max_pool, padding, untouched_rows, ignored_targets, lora, zero_branch, frozen,
        masked_attention, fused_attention,
    )
)  # fmt: skip
