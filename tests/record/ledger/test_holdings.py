"""What a training holds from step to step, to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tests.record.ledger.books import book_of, keep

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.recording import Recording

SHAPES = ((16, 8), (16,), (4, 16), (4,))
NUMEL = 16 * 8 + 16 + 4 * 16 + 4
FP32, BF16 = "float32", "bfloat16"
PHASES = ("forward", "backward", "step")


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


class _OwnOptimizer(torch.optim.Optimizer):
    """Keeps a state that a test names, and changes nothing."""

    def __init__(self, parameters: Any, state: Callable[[torch.Tensor], dict[str, torch.Tensor]]) -> None:
        super().__init__(parameters, {})
        self._make = state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter not in self.state:
                    self.state[parameter] = self._make(parameter)


def _factored(p: torch.Tensor) -> dict[str, torch.Tensor]:
    if p.dim() < 2:
        return {"exp_avg_sq": torch.zeros_like(p)}
    return {"exp_avg_sq_row": p.new_zeros(p.shape[0]), "exp_avg_sq_col": p.new_zeros(p.shape[1])}


def _eight_bit(p: torch.Tensor) -> dict[str, torch.Tensor]:
    both = {f"state{n}": torch.zeros(p.shape, dtype=torch.uint8) for n in (1, 2)}
    return {**both, "absmax1": torch.zeros(1), "absmax2": torch.zeros(1)}


_STEPS = {("step", FP32): 4 * len(SHAPES)}
"""Adam counts the steps of each parameter in a tensor of its own."""

_ADAM = {("exp_avg", FP32): 4 * NUMEL, ("exp_avg_sq", FP32): 4 * NUMEL, **_STEPS}

_ROWS, _COLUMNS, _VECTORS = 16 + 4, 8 + 16, 16 + 4

OPTIMIZERS: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], dict[Any, int]]] = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=1e-3), {}),
    "momentum": (lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9), {("momentum_buffer", FP32): 4 * NUMEL}),
    "adam": (torch.optim.Adam, _ADAM),
    "amsgrad": (lambda p: torch.optim.Adam(p, amsgrad=True), {**_ADAM, ("max_exp_avg_sq", FP32): 4 * NUMEL}),
    "adamw": (lambda p: torch.optim.AdamW(p, foreach=False), _ADAM),
    "adamw-foreach": (lambda p: torch.optim.AdamW(p, foreach=True), _ADAM),
    "adamw-fused": (lambda p: torch.optim.AdamW(p, fused=True), _ADAM),
    "factored": (
        lambda p: _OwnOptimizer(p, _factored),
        {
            ("exp_avg_sq_row", FP32): 4 * _ROWS, ("exp_avg_sq_col", FP32): 4 * _COLUMNS,
            ("exp_avg_sq", FP32): 4 * _VECTORS,
        },
    ),
    "eight-bit": (
        lambda p: _OwnOptimizer(p, _eight_bit),
        {
            ("state1", "uint8"): NUMEL, ("state2", "uint8"): NUMEL,
            ("absmax1", FP32): 4 * len(SHAPES), ("absmax2", FP32): 4 * len(SHAPES),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_state(name: str, recording: Recording) -> None:
    make, state = OPTIMIZERS[name]
    model = _mlp()
    book = keep(recording, model, make(model.parameters()), lambda: torch.randn(32, 8))
    for phase in PHASES:
        assert book.bytes(phase, "optimizer", "kind", "dtype") == state
        assert book.bytes(phase, "weights", "dtype") == {FP32: 4 * NUMEL}
    # `zero_grad` has let go of them before the forward pass.
    assert book.bytes("forward", "gradients") == 0
    assert book.bytes("backward", "gradients", "dtype") == {FP32: 4 * NUMEL}
    assert book.bytes("step", "gradients", "dtype") == {FP32: 4 * NUMEL}


def test_pure_bf16_holds_two_bytes_of_everything(recording: Recording) -> None:
    model = _mlp().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    book = keep(recording, model, optimizer, lambda: torch.randn(32, 8, dtype=torch.bfloat16))
    assert book.bytes("backward", "weights", "dtype") == {BF16: 2 * NUMEL}
    assert book.bytes("backward", "gradients", "dtype") == {BF16: 2 * NUMEL}
    assert book.bytes("backward", "optimizer", "dtype") == {BF16: 2 * NUMEL}


def test_master_copies_by_hand(recording: Recording) -> None:
    model = _mlp().to(torch.bfloat16)
    masters = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=1e-3, momentum=0.9)
    with recording.start(model=model, optimizer=optimizer, strict=True):
        for _ in range(6):
            model(torch.randn(32, 8, dtype=torch.bfloat16)).float().square().mean().backward()
            for parameter, master in zip(model.parameters(), masters, strict=True):
                assert parameter.grad is not None
                master.grad, parameter.grad = parameter.grad.float(), None
            optimizer.step()
            with torch.no_grad():
                for parameter, master in zip(model.parameters(), masters, strict=True):
                    parameter.copy_(master)
            optimizer.zero_grad()
    book = book_of(recording)
    assert book.bytes("backward", "weights", "dtype") == {BF16: 2 * NUMEL}
    assert book.bytes("backward", "master_weights", "dtype") == {FP32: 4 * NUMEL}
    assert book.bytes("backward", "gradients", "dtype") == {FP32: 4 * NUMEL}
    assert book.bytes("backward", "optimizer", "dtype") == {FP32: 4 * NUMEL}


def test_master_copies_in_the_optimizers_state(recording: Recording) -> None:
    model = _mlp().to(torch.bfloat16)
    optimizer = _OwnOptimizer(model.parameters(), lambda p: {"master_param": p.detach().float()})
    book = keep(recording, model, optimizer, lambda: torch.randn(32, 8, dtype=torch.bfloat16))
    assert book.bytes("step", "master_weights", "dtype") == {FP32: 4 * NUMEL}
    assert book.bytes("step", "optimizer") == 0


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("row", self.embed.weight.detach()[0])  # a view of it

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.embed(x)))


def test_tied_weights_and_views_count_once(recording: Recording) -> None:
    model = _Tied()
    book = keep(recording, model, torch.optim.SGD(model.parameters()), lambda: torch.randint(10, (5,)))
    assert book.bytes("forward", "weights") == 4 * 80
    assert book.bytes("forward", "buffers") == 0
    assert book.bytes("backward", "gradients") == 4 * 80
