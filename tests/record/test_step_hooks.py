"""The hooks of optimizers' steps go when nobody is going through them: torch fails the training otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ampdoctor.record.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REGISTER = {"before": register_optimizer_step_pre_hook, "after": register_optimizer_step_post_hook}


@pytest.fixture(autouse=True)
def _as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of ours are swallowed, and not raised as in the other tests."""
    monkeypatch.delenv("AMPDOCTOR_STRICT", raising=False)


class BrokenError(Exception):
    """What a test makes a recorder fail with."""


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


def _fail(*_: Any, **__: Any) -> None:
    raise BrokenError


def _hooks() -> int:
    return len(torch_optimizer._global_optimizer_pre_hooks) + len(torch_optimizer._global_optimizer_post_hooks)


@pytest.mark.parametrize("where", ["gradients", "after_step"])
@pytest.mark.parametrize("when", REGISTER)
def test_a_recorder_that_gives_up_within_a_step_leaves_the_hooks_of_others_to_be_called(
    tmp_path: Path, where: str, when: str
) -> None:
    model, called, before = nn.Linear(8, 1), list[int](), _hooks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = Recorder(tmp_path / "run").start()
    register: Callable[..., Any] = REGISTER[when]
    other = register(lambda *_: called.append(1))
    setattr(recorder._state.weights, where, _fail)
    _train(model, optimizer, 4)
    recorder.stop()
    other.remove()
    assert len(called) == 4
    assert _hooks() == before
