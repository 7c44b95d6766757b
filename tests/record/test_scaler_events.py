"""What a GradScaler did, step by step."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.recording import Recording

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "adam-foreach": lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "sgd-fused": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
}


def _train(
    factors: list[float], make: Callable[[Any], torch.optim.Optimizer] = OPTIMIZERS["sgd"], *, unscale: bool = False,
    **scaler: Any,
) -> list[float]:  # fmt: skip
    """Take one step for each factor of the loss (inf makes the gradient inf) and return the weight after each."""
    model = nn.Linear(1, 1, bias=False)
    optimizer = make(model.parameters())
    grad_scaler = torch.amp.GradScaler("cpu", **scaler)
    weights = []
    for factor in factors:
        optimizer.zero_grad()
        grad_scaler.scale(model(torch.ones(1, 1)).sum() * factor).backward()
        if unscale:
            grad_scaler.unscale_(optimizer)
        grad_scaler.step(optimizer)
        grad_scaler.update()
        weights.append(model.weight.item())
    return weights


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_skip_backoff_growth_and_hold(recording: Recording, make: Any, unscale: bool) -> None:
    with recording.start(every=1):
        weights = _train([1.0, 1.0, math.inf, 1.0, 1.0], make, unscale=unscale, init_scale=16.0, growth_interval=2)
    # Two good steps let the scale grow, a bad one halves it and starts the count anew.
    events = [(e.step, e.event, e.scale, e.scale_after) for e in recording.events() if e.event != "unscale"]
    assert events == [
        (0, "seen", None, None),
        (0, "step", 16.0, None), (0, "hold", 16.0, 16.0),
        (1, "step", 16.0, None), (1, "growth", 16.0, 32.0),
        (2, "skip", 32.0, None), (2, "backoff", 32.0, 16.0),
        (3, "step", 16.0, None), (3, "hold", 16.0, 16.0),
        (4, "step", 16.0, None), (4, "growth", 16.0, 32.0),
    ]  # fmt: skip
    assert len(recording.events(event="unscale")) == (5 if unscale else 0)
    rows = recording.run.steps
    assert [r.loss_scale for r in rows] == [16.0, 16.0, 32.0, 16.0, 16.0]
    assert [r.found_inf for r in rows] == [False, False, True, False, False]
    assert [r.applied for r in rows] == [True, True, False, True, True]
    # What was recorded as skipped did not move the weight; the rest did.
    moved = [b != a for a, b in pairwise(weights)]
    assert moved == [True, False, True, True]


def test_a_fused_optimizer_is_called_on_a_skipped_step_and_moves_nothing(recording: Recording) -> None:
    with recording.start(every=1):
        _train([1.0, math.inf], OPTIMIZERS["adamw-fused"], init_scale=4.0)
    updates = recording.tensors("update")
    assert [(u.step, u.zeros) for u in updates] == [(0, 0), (1, 1)]


def test_the_settings_of_a_scaler_are_told_once(recording: Recording) -> None:
    with recording.start(every=1):
        _train([1.0, 1.0], init_scale=2.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=7)
    (seen,) = recording.events(event="seen")
    assert (seen.scaler, seen.enabled, seen.step) == ("scaler0", True, 0)
    assert (seen.growth_factor, seen.backoff_factor, seen.growth_interval) == (4.0, 0.25, 7)


def test_events_and_calls_share_one_order(recording: Recording) -> None:
    with recording.start(every=1):
        _train([1.0], unscale=True, init_scale=2.0)
    rows = [(c.seq, c.call) for c in recording.calls()] + [(e.seq, e.event) for e in recording.events()]
    assert [name for _, name in sorted(rows)] == [
        "zero_grad", "seen", "scale", "backward", "unscale", "unscale", "scaler_step", "step", "update", "hold",
    ]  # fmt: skip
    assert len({seq for seq, _ in rows}) == len(rows)


def test_a_disabled_scaler(recording: Recording) -> None:
    with recording.start(every=1):
        _train([1.0, math.inf], enabled=False)
    assert [(e.event, e.enabled, e.scale, e.growth_interval) for e in recording.events()] == [
        ("seen", False, None, None)
    ]
    rows = recording.run.steps
    assert [(r.loss_scale, r.found_inf, r.applied) for r in rows] == [(None, None, True)] * 2
    assert recording.calls("backward")[0].scaled == "none"
    assert {c.call for c in recording.calls()} == {"zero_grad", "scale", "backward", "optimizer_step"}


def test_two_optimizers_one_of_which_skips(recording: Recording) -> None:
    first, second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (first, second)]
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with recording.start(every=1):
        for _ in range(2):
            x = torch.ones(1, 1)
            for optimizer in optimizers:
                optimizer.zero_grad()
            scaler.scale(first(x).sum() + second(x).sum() * math.inf).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
    events = [(e.step, e.event, e.optimizer) for e in recording.events() if e.event in {"step", "skip"}]
    assert events == [(i, e, o) for i in (0, 1) for e, o in (("step", "optimizer0"), ("skip", "optimizer1"))]
    # The scaler saw a nonfinite gradient, and one optimizer changed the weights all the same.
    assert [(r.found_inf, r.applied) for r in recording.run.steps] == [(True, True)] * 2
    assert [(e.scale, e.scale_after) for e in recording.events(event="backoff")] == [(8.0, 4.0), (4.0, 2.0)]


def test_two_scalers_go_by_two_names(recording: Recording) -> None:
    models = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    scalers = [torch.amp.GradScaler("cpu", init_scale=s) for s in (4.0, 32.0)]
    with recording.start(every=1):
        for model, optimizer, scaler in zip(models, optimizers, scalers, strict=True):
            scaler.scale(model(torch.ones(1, 1)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [(e.scaler, e.scale) for e in recording.events(event="step")] == [("scaler0", 4.0), ("scaler1", 32.0)]


@pytest.mark.parametrize("new_scale", [256.0, torch.tensor(256.0)], ids=["float", "tensor"])
def test_a_scale_that_the_user_sets(recording: Recording, new_scale: Any) -> None:
    model = nn.Linear(1, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with recording.start(every=1) as recorder:
        scaler.scale(model(torch.ones(1, 1)).sum()).backward()
        scaler.update(new_scale)
        recorder.step()
        scaler.scale(model(torch.ones(1, 1)).sum()).backward()
        recorder.step()
    (event,) = [e for e in recording.events() if e.scale_after is not None]
    assert (event.event, event.scale, event.scale_after) == ("set", 4.0, 256.0)
    assert [r.loss_scale for r in recording.run.steps] == [4.0, 256.0]


def test_a_scale_that_comes_from_a_checkpoint(recording: Recording) -> None:
    model = nn.Linear(1, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with recording.start(every=1) as recorder:
        scaler.scale(model(torch.ones(1, 1)).sum()).backward()
        recorder.step()
        scaler.load_state_dict(scaler.state_dict() | {"scale": 1024.0})
        scaler.scale(model(torch.ones(1, 1)).sum()).backward()
        recorder.step()
    assert [r.loss_scale for r in recording.run.steps] == [4.0, 1024.0]


def test_a_scale_that_never_stops_falling(recording: Recording) -> None:
    with recording.start(every=1):
        _train([math.inf] * 6, init_scale=2.0)
    assert [r.loss_scale for r in recording.run.steps] == [2.0**-i for i in range(-1, 5)]
    assert not any(r.applied for r in recording.run.steps)
    # Although no optimizer ever stepped, what is known of it and of its learning rate is there.
    (row,) = recording.run.optimizers
    assert (row.optimizer, row.type, row.lr) == ("optimizer0", "SGD", 0.1)
    assert [r.lr for r in recording.run.steps] == [0.1] * 6


@pytest.mark.parametrize(
    ("mistake", "call"),
    [
        (lambda s, o: (s.unscale_(o), s.unscale_(o)), "unscale"),
        (lambda s, o: (s.step(o), s.step(o)), "scaler_step"),
        (lambda s, o: (s.step(o), s.unscale_(o)), "unscale"),
        (lambda s, o: s.step(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)), "scaler_step"),
    ],
    ids=["unscaled twice", "stepped twice", "unscaled after step", "nothing to check"],
)
def test_an_error_that_the_scaler_raises(recording: Recording, mistake: Any, call: str) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")

    def fail() -> None:
        with recording.start(every=1):
            scaler.scale(model(torch.ones(1, 1)).sum()).backward()
            mistake(scaler, optimizer)

    with pytest.raises((RuntimeError, AssertionError)) as raised:
        fail()
    (failed,) = [c for c in recording.calls() if c.error]
    assert failed.call == call
    assert failed.error == f"{type(raised.value).__name__}: {raised.value}"
    assert recording.run.info.exception == failed.error


def test_a_scale_that_is_taken_back_by_hand_is_no_backoff(recording: Recording) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    with recording.start(every=1):
        for factor in (1.0, 1.0, math.inf):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(1, 1)).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() > 4.0:
                scaler.update(new_scale=4.0)
    moves = [(e.event, e.scale, e.scale_after) for e in recording.events() if e.scale_after is not None]
    assert moves == [("growth", 4.0, 8.0), ("set", 8.0, 4.0)] * 2 + [("backoff", 4.0, 2.0)]
