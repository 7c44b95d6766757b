"""Which thread is followed: the one that trains, whoever has built what it trains with."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.recording import Recording


def _model() -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _loss(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.ones(1, 2)).sum()
    return loss


def test_a_thread_that_loads_is_not_the_one_that_trains(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        optimizer.load_state_dict(optimizer.state_dict())

        def train() -> None:
            _loss(model).backward()
            optimizer.step()

        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert [c.call for c in recording.calls()] == ["load_state", "backward", "optimizer_step"]


def _schedule(_: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ConstantLR(optimizer), lr_scheduler.StepLR(optimizer, 1)], milestones=[1]
    )


def _differentiate(*_: object) -> None:
    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad((x * x).sum(), x, create_graph=True)


@pytest.mark.parametrize("build", [_schedule, lambda model, _: model.zero_grad(), _differentiate])
def test_what_is_built_here_may_train_in_a_thread(recording: Recording, build: Callable[..., object]) -> None:
    model, optimizer = _model()

    def train() -> None:
        scheduler = lr_scheduler.StepLR(optimizer, 1)
        for _ in range(3):
            _loss(model).backward()
            optimizer.step()
            scheduler.step()

    with recording.start(every=1):
        build(model, optimizer)
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert len(recording.run.steps) == len(recording.calls("scheduler_step")) == 3
