"""What is recorded for the rules about the order of calls, beside the calls themselves."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.recorder import Recorder
    from tests.record.recording import Recording

SCALE = 1024.0


def _model() -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=SCALE)


def _loss(model: nn.Module, x: float = 1.0) -> torch.Tensor:
    loss: torch.Tensor = model(torch.full((1, 2), x)).sum()
    return loss


def test_schedulers(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        scheduler = lr_scheduler.StepLR(optimizer, 1, gamma=0.5)  # its first step is its own
        plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
        for _ in range(2):
            _loss(model).backward()
            optimizer.step()
            scheduler.step()
            plateau.step(1.0)
    rows = recording.calls("scheduler_step")
    assert [(c.target, c.lr_before, c.lr_after, c.base_lr) for c in rows] == [
        ("optimizer0", 0.1, 0.05, 0.1),
        ("optimizer0", 0.05, 0.025, 0.1),
    ]


def test_a_scheduler_of_several_is_one(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        parts = [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.5)]
        together = lr_scheduler.SequentialLR(optimizer, list(parts), milestones=[1])
        for _ in range(3):
            _loss(model).backward()
            optimizer.step()
            together.step()
    assert len(recording.calls("scheduler_step")) == 3


def test_states_that_are_loaded(recording: Recording) -> None:
    model, optimizer = _model()
    scaler = _scaler()
    fresh = optimizer.state_dict()
    _loss(model).backward()
    optimizer.step()
    with recording.start(every=1):
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.load_state_dict(state_dict=fresh)
        scaler.load_state_dict(scaler.state_dict())
        _loss(model).backward()
        optimizer.step()
    rows = recording.calls("load_state")
    assert [(c.target, c.entries) for c in rows] == [
        ("optimizer0", 2), ("optimizer0", 0), ("scaler0", None),
    ]  # fmt: skip


def test_nothing_of_a_step_outlives_it(recording: Recording) -> None:
    model, optimizer = _model()
    scaler = _scaler()
    logs = []
    with recording.start(every=1000) as recorder:
        for _ in range(4):
            logs.append(weakref.ref(recorder._state.log))
            scaler.scale(_loss(model)).backward()
            scaler.step(optimizer)
            scaler.update()
        gc.collect()
        assert [log() for log in logs[:-1]] == [None] * 3


def test_gradients_cleared_by_the_module(recording: Recording) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    both = nn.Sequential(first, second)
    one = torch.optim.SGD(first.parameters(), lr=0.1)
    other = torch.optim.SGD(second.parameters(), lr=0.1)
    with recording.start(every=1):
        _loss(both).backward()
        one.step()
        other.step()
        both.zero_grad()
        second.zero_grad()
        nn.ReLU().zero_grad()
    assert [c.target for c in recording.calls("zero_grad")] == [
        "optimizer0", "optimizer1", "optimizer1",
    ]  # fmt: skip
    assert first.weight.grad is None


def test_what_is_held_before_a_backward_pass(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        for value in (1.0, 2.0, float("inf"), 3.0):
            _loss(model, value).backward()
            if value == 1.0:
                optimizer.zero_grad(set_to_none=False)
        optimizer.step()
    rows = recording.calls("backward")
    assert [c.holding for c in rows] == [[], [], ["optimizer0"], ["optimizer0"]]
    assert [c.holding_nonfinite for c in rows] == [[], [], [], ["optimizer0"]]


def test_it_is_asked_after_a_skip_on_any_step(recording: Recording) -> None:
    model, optimizer = _model()
    scaler = _scaler()
    with recording.start(every=100):
        for step in range(16):
            scaler.scale(_loss(model, float("inf") if step == 4 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
    rows = recording.calls("backward")
    held = {c.step: c.holding_nonfinite for c in rows if not recording.run.steps[c.step].examined}
    # The bursts of examined steps after the first skips are over by then.
    assert held[14] == ["optimizer0"]
    assert held[3] is None


@pytest.mark.parametrize(
    ("between", "ratio"),
    [
        (lambda model, _: None, 1.0),
        (lambda model, scaler: [p.grad.div_(scaler.get_scale()) for p in model.parameters()], 1 / SCALE),
        (lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.5), 1.0),
        (lambda model, _: model.zero_grad(set_to_none=False), None),
    ],
    ids=["nothing", "divided", "clipped", "cleared"],
)  # fmt: skip
def test_gradients_resized_by_code(recording: Recording, between: Callable[..., object], ratio: float | None) -> None:
    model, optimizer = _model()
    scaler = _scaler()
    with recording.start(every=1):
        scaler.scale(_loss(model)).backward()
        between(model, scaler)
        optimizer.step()
    (call,) = recording.calls("optimizer_step")
    assert call.resized == (None if ratio is None else pytest.approx(ratio))


def _penalised(divide: Callable[[torch.Tensor, torch.amp.GradScaler], torch.Tensor]) -> bool | None:
    model, optimizer = _model()
    scaler = _scaler()
    loss = _loss(model).square()
    (made,) = torch.autograd.grad(scaler.scale(loss), model.weight, create_graph=True)
    penalty = divide(made, scaler)
    scaler.scale(loss + 10.0 * penalty).backward()
    optimizer.step()
    return None


@pytest.mark.parametrize(
    ("divide", "undivided"),
    [
        (lambda g, _: g.norm(), True),
        (lambda g, scaler: (g / scaler.get_scale()).norm(), False),
        (lambda g, scaler: (g * (1.0 / scaler.get_scale())).norm(), False),
        (lambda g, scaler: g.norm() / scaler.get_scale(), False),
        (lambda g, scaler: g.square().sum() / scaler.get_scale() ** 2, False),
        (lambda g, scaler: (g / scaler._scale).norm(), False),
        (lambda g, _: g.detach().norm(), None),
    ],
    ids=["as it is", "divided", "multiplied", "its norm", "its square", "by the tensor", "detached"],
)
def test_a_gradient_penalty(recording: Recording, divide: Callable[..., torch.Tensor], undivided: bool | None) -> None:
    with recording.start(every=1):
        _penalised(divide)
    (made,), (last,) = recording.calls("grad"), recording.calls("backward")
    assert made.scaled == "all"
    assert made.norm is not None
    assert last.penalty_undivided is undivided


def test_a_penalty_from_backward_with_create_graph(recording: Recording) -> None:
    model, optimizer = _model()
    scaler = _scaler()
    with recording.start(every=1):
        loss = _loss(model).square()
        scaled = scaler.scale(loss)
        with pytest.warns(UserWarning, match="create_graph"):
            scaled.backward(create_graph=True)
        assert model.weight.grad is not None
        penalty = model.weight.grad.square().sum()
        optimizer.zero_grad()
        scaler.scale(loss + penalty).backward()
        optimizer.step()
    assert [c.penalty_undivided for c in recording.calls("backward")] == [None, True]


def test_gradients_of_a_loss_without_a_scale_are_no_matter(recording: Recording) -> None:
    model, optimizer = _model()
    scaler = _scaler()
    with recording.start(every=1):
        x = torch.ones(1, 2, requires_grad=True)
        score = model(x).square().sum()
        (made,) = torch.autograd.grad(score, x, create_graph=True)
        torch.autograd.grad(score, x, retain_graph=True)
        scaler.scale(score + made.norm()).backward()
        optimizer.step()
    assert [c.scaled for c in recording.calls("grad")] == ["none"]
    assert [c.penalty_undivided for c in recording.calls("backward")] == [None]


def test_nothing_of_it_changes_a_bit(recorder: Recorder) -> None:
    def train() -> list[torch.Tensor]:
        torch.manual_seed(5)
        model, optimizer = _model()
        scaler = _scaler()
        scheduler = lr_scheduler.StepLR(optimizer, 2)
        for _ in range(4):
            model.zero_grad()
            loss = model(torch.randn(3, 2)).square().sum()
            made = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
            penalty = sum((g / scaler.get_scale()).square().sum() for g in made)
            scaler.scale(loss + penalty).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.load_state_dict(optimizer.state_dict())
            scaler.load_state_dict(scaler.state_dict())
        return [p.detach().clone() for p in model.parameters()]

    recorded = train()
    recorder.stop()
    assert all(torch.equal(a, b) for a, b in zip(recorded, train(), strict=True))


def test_gradients_by_torch_func_are_left_alone(recording: Recording) -> None:
    model, optimizer = _model()
    x = torch.ones(3, 2)
    with recording.start(every=1):
        weights = dict(model.named_parameters())
        per_sample = torch.func.vmap(
            torch.func.grad(lambda w, row: torch.func.functional_call(model, w, row).sum()), in_dims=(None, 0)
        )(weights, x)
        model.weight.grad = per_sample["weight"].sum(0)
        optimizer.step()
    assert recording.calls("grad") == []
    assert recording.run.info.status == "complete"
