"""Gradients that code of the user's cuts to one norm before the scaler divides them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

if TYPE_CHECKING:
    from tests.record.recording import Recording


def _model() -> tuple[nn.Module, torch.optim.Optimizer, torch.amp.GradScaler]:
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)


def _loss(model: nn.Module, x: float = 1.0) -> torch.Tensor:
    loss: torch.Tensor = model(torch.full((1, 2), x)).sum()
    return loss


def _cut(model: nn.Module) -> None:
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.mul_(0.5 / norm)


@pytest.mark.parametrize("unscale", [False, True])
def test_gradients_cut_by_hand_before_the_scaler(recording: Recording, unscale: bool) -> None:
    model, optimizer, scaler = _model()
    norms = []
    with recording.start(every=100):
        for number in range(5):
            optimizer.zero_grad()
            scaler.scale(_loss(model, 1.0 + number)).backward()
            norms.append(math.hypot(*[float(p.grad.norm()) for p in model.parameters() if p.grad is not None]))
            _cut(model)
            if unscale:
                scaler.unscale_(optimizer)
                _cut(model)
            scaler.step(optimizer)
            scaler.update()
    rows = recording.calls("unscale" if unscale else "scaler_step")
    assert [c.norm and round(c.norm, 5) for c in rows] == [0.5, 0.5, 0.5, None, None]
    assert rows[2].resized == pytest.approx(0.5 / norms[2])
    if unscale:  # what is done to unscaled gradients is right
        assert {(c.norm, c.resized) for c in recording.calls("scaler_step")} == {(None, None)}


def test_gradients_left_alone_before_the_scaler(recording: Recording) -> None:
    model, optimizer, scaler = _model()
    with recording.start(every=1):
        scaler.scale(_loss(model)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        scaler.step(optimizer)
    (call,) = recording.calls("scaler_step")
    assert call.resized == 1.0
