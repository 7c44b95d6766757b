"""Steps that no optimizer tells of, because its `step` is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from tests.record.recording import Recording

X = torch.ones(4, 2)


def _model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_steps_of_a_compiled_optimizer_end_where_its_gradients_are_cleared(recording: Recording) -> None:
    model, optimizer = _model()
    step = torch.compile(optimizer.step, backend="eager")
    with recording.start(every=1):
        for _ in range(4):
            optimizer.zero_grad()
            F.mse_loss(model(X), X[:, :1]).backward()
            step()
        optimizer.zero_grad()
    assert [(s.step, s.micro_batches) for s in recording.run.steps] == [(n, 1) for n in range(4)]
    assert {t.step for t in recording.tensors("weight_grad")} == set(range(4))


def test_weights_changed_by_hand_beside_an_optimizer_end_steps_once(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        for _ in range(3):
            model.zero_grad()
            F.mse_loss(model(X), X[:, :1]).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.5)  # a decay by hand
            optimizer.step()
    assert [(s.step, s.micro_batches) for s in recording.run.steps] == [(n, 1) for n in range(3)]
