"""Where steps end, and what is known of each."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from ampdoctor.record.recorder import Recorder
    from tests.record.recording import Recording


def _model() -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


X = torch.ones(1, 2)


def test_losses_and_the_time(recording: Recording) -> None:
    model, optimizer = _model()
    losses, before = [], time.time()
    with recording.start(every=2):
        for _ in range(6):
            optimizer.zero_grad()
            loss = model(X).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    rows = recording.run.steps
    assert [r.step for r in rows] == list(range(6))
    assert [r.loss for r in rows] == losses
    assert before <= rows[0].time <= rows[-1].time <= time.time()
    assert all(r.wall_ms > 0 for r in rows)
    assert sum(r.wall_ms for r in rows) <= 1e3 * (time.time() - before)
    assert [r.examined for r in rows] == [True, True, True, False, True, False]
    assert {(r.micro_batches, r.applied, r.found_inf, r.loss_scale, r.grad_norm, r.lr) for r in rows} == {
        (1, True, None, None, None, 0.1)
    }
    assert all((r.allocated_bytes is None) == (not torch.cuda.is_initialized()) for r in rows)


def test_the_learning_rate_as_it_changes(recording: Recording) -> None:
    model, optimizer = _model()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with recording.start(every=100):
        for _ in range(4):
            model(X).sum().backward()
            optimizer.step()
            schedule.step()
    assert [r.lr for r in recording.run.steps] == [0.1, 0.05, 0.025, 0.0125]


def test_accumulation(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        for _ in range(2):
            for _ in range(3):
                (model(X).square().sum() / 3).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert [r.micro_batches for r in recording.run.steps] == [3, 3]
    calls = [(c.step, c.micro_batch, c.call) for c in recording.calls("backward", "optimizer_step")]
    assert calls == [
        (s, m, k) for s in (0, 1) for m, k in ((0, "backward"), (1, "backward"), (2, "backward"), (3, "optimizer_step"))
    ]


def test_optimizers_that_take_turns_make_one_step(recording: Recording) -> None:
    first, second = (nn.Linear(2, 1) for _ in range(2))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (first, second)]
    with recording.start(every=1):
        for _ in range(3):
            for model, optimizer in zip((first, second), optimizers, strict=True):
                optimizer.zero_grad()
                model(X).sum().backward()
                optimizer.step()
    assert [r.micro_batches for r in recording.run.steps] == [2, 2, 2]
    steps = [(c.step, c.target) for c in recording.calls("optimizer_step")]
    assert steps == [(s, o) for s in range(3) for o in ("optimizer0", "optimizer1")]


def test_an_optimizer_that_joins_later(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        for step in range(6):
            if step == 2:
                other, later = _model()
            model(X).sum().backward()
            optimizer.step()
            if step >= 2:
                other(X).sum().backward()
                later.step()
    # Nothing gets lost and no step is twice as long, whatever belongs together.
    assert sum(r.micro_batches for r in recording.run.steps) <= 10
    assert max(r.micro_batches for r in recording.run.steps) == 2
    assert len(recording.calls("optimizer_step")) == 10


def test_a_loop_without_an_optimizer(recording: Recording) -> None:
    weight = torch.ones(3, requires_grad=True)
    with recording.start(every=1):
        for _ in range(3):
            (weight * 2.0).sum().backward()
            with torch.no_grad():
                weight -= 0.5 * weight.grad  # type: ignore[operator]
            weight.grad = None
    assert [(r.step, r.loss, r.applied, r.lr) for r in recording.run.steps] == [
        (0, 6.0, None, None), (1, 0.0, None, None), (2, -6.0, None, None),
    ]  # fmt: skip
    gradients = recording.tensors("weight_grad")
    assert [(r.step, r.module, r.slot, r.absmax) for r in gradients] == [(i, "", "weight", 2.0) for i in range(3)]


def test_a_loop_that_says_where_its_steps_end(recording: Recording) -> None:
    weight = torch.ones(3, requires_grad=True)
    with recording.start(every=1) as recorder:
        for _ in range(3):
            (weight * 2.0).sum().backward()
            (weight * 3.0).sum().backward()
            recorder.step()
    # The first pass was taken for a step before anybody said otherwise.
    assert [r.micro_batches for r in recording.run.steps] == [1, 1, 2, 2]


@pytest.mark.parametrize("zero_grad_last", [False, True])
def test_saying_so_with_an_optimizer_adds_no_step(recording: Recording, zero_grad_last: bool) -> None:
    model, optimizer = _model()
    with recording.start(every=1) as recorder:
        for _ in range(3):
            if not zero_grad_last:
                optimizer.zero_grad()
            model(X).sum().backward()
            optimizer.step()
            if zero_grad_last:
                optimizer.zero_grad()
            recorder.step()
    assert [r.micro_batches for r in recording.run.steps] == [1, 1, 1]
    assert [r.applied for r in recording.run.steps] == [True, True, True]


def test_a_step_under_way_keeps_its_calls(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        model(X).sum().backward()
        optimizer.step()
        model(X).sum().backward()
    assert len(recording.run.steps) == 1
    assert [c.step for c in recording.calls("backward")] == [0, 1]
    assert {r.step for r in recording.tensors("grad_output")} == {0, 1}


def test_a_skip_brings_a_burst(recording: Recording) -> None:
    model, optimizer = _model()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with recording.start():
        for step in range(30):
            factor = float("inf") if step == 19 else 1.0
            optimizer.zero_grad()
            scaler.scale(model(X).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
    examined = {r.step: r.reason for r in recording.run.steps if r.examined}
    assert examined == {
        0: "first", 1: "first", 2: "first", 4: "interval", 8: "interval", 16: "interval", 20: "skip", 21: "skip",
    }  # fmt: skip


def test_an_update_of_the_scaler_that_is_missing(recording: Recording) -> None:
    model, optimizer = _model()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with recording.start(every=1):
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(model(X).sum()).backward()
            scaler.step(optimizer)
            scaler._per_optimizer_states.clear()
    # The step ends where the next backward pass begins; what was called in between still counts to it.
    assert [r.micro_batches for r in recording.run.steps] == [1]
    calls = [(c.step, c.call) for c in recording.calls()]
    assert calls == [
        (0, "zero_grad"), (0, "scale"), (0, "backward"), (0, "scaler_step"), (0, "zero_grad"), (0, "scale"),
        (1, "backward"), (1, "scaler_step"),
    ]  # fmt: skip


def test_parameters_that_an_optimizer_gets_later(recording: Recording) -> None:
    frozen, head = nn.Linear(2, 2).requires_grad_(requires_grad=False), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    with recording.start(model=nn.Sequential(frozen, head), every=1):
        for step in range(3):
            if step == 1:
                frozen.requires_grad_(requires_grad=True)
                optimizer.add_param_group({"params": frozen.parameters()})
            head(frozen(X)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert [len(recording.tensors("update", step=i)) for i in range(3)] == [2, 4, 4]
    assert {tuple(c.optimizers or ()) for c in recording.calls("backward")} == {("optimizer0",)}


def test_start_and_stop(recording: Recording) -> None:
    model, optimizer = _model()
    recorder = recording.start(every=1)
    assert recorder.start() is recorder.start()
    model(X).sum().backward()
    optimizer.step()
    recorder.stop()
    recorder.stop()
    model(X).sum().backward()
    optimizer.step()
    recorder.step()
    with pytest.raises(AmpDoctorError, match="has stopped"):
        recorder.start()
    assert len(recording.run.steps) == 1


def test_what_is_told_when(recording: Recording) -> None:
    told: list[Any] = []
    model, optimizer = _model()
    with recording.start(
        every=1, on_open=lambda f: told.append(("open", f)), on_close=lambda f: told.append(("close", f))
    ):
        told.append("started")
        for _ in range(2):
            model(X).sum().backward()
            optimizer.step()
            told.append("step")
    assert told == ["started", ("open", recording.folder), "step", "step", ("close", recording.folder)]


def test_a_callback_may_stop_the_recorder(recording: Recording) -> None:
    model, optimizer = _model()
    recorder: Recorder = recording.start(every=1, on_open=lambda _: recorder.stop())
    with recorder:
        for _ in range(2):
            F.mse_loss(model(X), X[:, :1]).backward()
            optimizer.step()
    assert recording.run.info.status == "complete"


def test_the_optimizers_table(recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1).bfloat16())
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[1].parameters(), "weight_decay": 0.25}]
    optimizer = torch.optim.AdamW(groups, lr=0.125, betas=(0.5, 0.75), eps=2.0**-20, foreach=True)
    with recording.start(every=1):
        for _ in range(2):
            model[1](model[0](X).bfloat16()).sum().backward()
            optimizer.step()
    rows = [asdict(r) for r in recording.run.optimizers]
    common = {
        "step": 0, "optimizer": "optimizer0", "type": "AdamW", "eps": 2.0**-20, "momentum": None, "betas": [0.5, 0.75],
        "fused": None, "foreach": True, "parameters": 2,
    }  # fmt: skip
    assert rows == [
        common | {"group": 0, "lr": 0.5, "weight_decay": 0.01, "numel": 9, "dtypes": ["float32"]},
        common | {"group": 1, "lr": 0.125, "weight_decay": 0.25, "numel": 4, "dtypes": ["bfloat16"]},
    ]


def test_an_optimizer_of_another_package_is_told_from_torchs_own(recording: Recording) -> None:
    stochastic = type("AdamW", (torch.optim.AdamW,), {"__module__": "rounding.optim"})
    model = nn.Linear(2, 1)
    optimizer = stochastic(model.parameters(), lr=0.1)
    with recording.start(every=1):
        model(X).sum().backward()
        optimizer.step()
    assert [row.type for row in recording.run.optimizers] == ["rounding.optim.AdamW"]
