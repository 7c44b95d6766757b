"""Half weights beside FP32 masters: the optimizer knows the masters only, and the gradients are those of the halves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.record.training import Outcome, seed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.recording import Recording

    Clear = Callable[[nn.Module, torch.optim.Optimizer], object]


def _nothing(*_: object) -> None:
    """Code that steps at once."""


def _module_first(model: nn.Module, _: torch.optim.Optimizer) -> None:
    model.zero_grad()


def _optimizer_first(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    kept = [p.grad for p in optimizer.param_groups[0]["params"]]
    optimizer.zero_grad()
    for master, gradient in zip(optimizer.param_groups[0]["params"], kept, strict=True):
        master.grad = gradient
    model.weight.grad = None


def _clip(model: nn.Module, _: torch.optim.Optimizer) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)


def _train(steps: int, micro_batches: int, before_step: Clear = _nothing, *, each: bool = False) -> Outcome:
    seed()
    model = nn.Linear(8, 1, bias=False).bfloat16()
    masters = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=1e-3)
    for _ in range(steps):
        total = [torch.zeros_like(m) for m in masters]
        for _ in range(micro_batches):
            if each:
                model.zero_grad()
            model((1.0 + 0.1 * torch.randn(1, 8)).bfloat16()).sum().backward()
            if each:
                total = [t + p.grad.float() for t, p in zip(total, model.parameters(), strict=True)]  # type: ignore[union-attr]
        for master, p, t in zip(masters, model.parameters(), total, strict=True):
            assert p.grad is not None
            master.grad = t if each else p.grad.float()
        before_step(model, optimizer)
        optimizer.step()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters(), strict=True):
                p.copy_(master)
                p.grad = None
    return Outcome.of(masters=masters, model=list(model.parameters()))


@pytest.mark.parametrize("before_step", [_nothing, _module_first, _optimizer_first, _clip])
def test_sums_of_working_copies_are_compared(recording: Recording, before_step: Clear) -> None:
    alone = _train(2, 300, before_step)
    with recording.start(every=1):
        recorded = _train(2, 300, before_step)
    assert recorded.differences(alone) == []
    rows = recording.tensors("weight_grad", dtype="bfloat16")
    assert [(r.step, r.site, r.additions) for r in rows] == [(s, "model.weight", 299) for s in (0, 1)]
    assert all(r.sum_norm_ratio and (r.sum_cosine or 0.0) > 0.9 for r in rows)


def test_sums_in_fp32_have_nothing_to_compare(recording: Recording) -> None:
    with recording.start(every=1):
        _train(2, 20, each=True)
    rows = recording.tensors("weight_grad", dtype="bfloat16")
    assert [(r.step, r.additions) for r in rows] == [(0, None), (1, None)]


def test_weights_that_nobody_trains_are_left_out(recording: Recording) -> None:
    """A backbone in half that was meant to be frozen gets gradients; there are no masters of it."""
    backbone = nn.Linear(8, 8).bfloat16()
    head = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-3)
    with recording.start(every=1):
        for _ in range(3):
            for _ in range(4):
                head(backbone(torch.randn(2, 8).bfloat16()).float()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            backbone.zero_grad()
    assert {r.dtype for r in recording.tensors("weight_grad")} == {"float32"}


def test_halves_that_an_optimizer_trains_are_recorded_once(recording: Recording) -> None:
    model, wide = nn.Linear(8, 1, bias=False).bfloat16(), nn.Linear(8, 8)
    optimizer = torch.optim.SGD([*model.parameters(), *wide.parameters()], lr=1e-3)
    with recording.start(every=1):
        for _ in range(3):
            model(wide(torch.randn(2, 8)).bfloat16()).sum().backward()
        optimizer.step()
    assert len(recording.tensors("weight_grad", dtype="bfloat16")) == 1
