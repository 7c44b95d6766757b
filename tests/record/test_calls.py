"""The calls that matter, in order, with the line that made them."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from ampdoctor.record import callsite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.record.recording import Recording


clip_grads_with_norm_: Any = getattr(torch.nn.utils, "clip_grads_with_norm_", None)
"""As code has it that imported it by name."""


def _line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def _model() -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_the_usual_order_with_its_lines(recording: Recording) -> None:
    model, optimizer = _model()
    scaler = torch.amp.GradScaler("cpu")
    with recording.start(every=1):
        start = _line()
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert [(c.call, c.target, c.line) for c in recording.calls()] == [
        ("zero_grad", "optimizer0", start + 1),
        ("scale", "scaler0", start + 3),
        ("backward", None, start + 3),
        ("unscale", "optimizer0", start + 4),
        ("clip_norm", "optimizer0", start + 5),
        ("scaler_step", "optimizer0", start + 6),
        ("update", "scaler0", start + 7),
    ]
    here = os.path.relpath(__file__)
    assert {(c.file, c.function) for c in recording.calls()} == {(here, "test_the_usual_order_with_its_lines")}
    assert {(c.step, c.micro_batch) for c in recording.calls("zero_grad", "scale", "backward")} == {(0, 0)}
    assert {(c.step, c.micro_batch) for c in recording.calls("unscale", "update")} == {(0, 1)}
    assert not [c for c in recording.calls() if c.error or c.autocast]


def test_a_plain_optimizer(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    # What follows the step belongs to the next one.
    assert [(c.step, c.call) for c in recording.calls()] == [
        (0, "backward"), (0, "optimizer_step"),
        (1, "zero_grad"), (1, "backward"), (1, "optimizer_step"),
        (2, "zero_grad"),
    ]  # fmt: skip
    assert len(recording.run.steps) == 2


def test_a_file_outside_the_working_directory_has_its_whole_path(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, optimizer = _model()
    with recording.start(every=1):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert {c.file for c in recording.calls()} == {__file__}


def test_a_working_directory_that_is_gone(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    place.rmdir()
    model, optimizer = _model()
    with recording.start(every=1):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert {c.file for c in recording.calls()} == {__file__}
    assert recording.run.info.status == "complete"
    monkeypatch.undo()


def test_code_without_a_file(recorder: Any, recording: Recording) -> None:
    model, optimizer = _model()
    exec("model(x).sum().backward(); optimizer.step()", {"model": model, "x": torch.ones(1, 2), "optimizer": optimizer})
    recorder.stop()
    assert {(c.file, c.line, c.function) for c in recording.calls()} == {("<string>", 1, "<module>")}


def test_a_call_from_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callsite, "_NOT_THE_USERS", ("/", "<"))
    assert callsite.call_site() == callsite.CallSite(None, None, None)


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "float16"), (torch.bfloat16, "bfloat16"), (None, None)])
def test_autocast_at_the_call(recording: Recording, dtype: torch.dtype | None, name: str | None) -> None:
    model, optimizer = _model()
    with recording.start(every=1), torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    within = [c for c in recording.calls() if c.call != "autocast_exit"]  # by then it has been left
    assert {c.autocast for c in within} == {name}


def test_clipping(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        (model(torch.tensor([[3.0, 4.0]])) * torch.tensor(2.0)).sum().backward()
        norm = clip_grad_norm_(model.parameters(), max_norm=0.5)
        torch.nn.utils.clip_grad_value_(list(model.parameters()), 0.25)
        torch.nn.utils.clip_grad_value_(model.weight, clip_value=0.125)
        optimizer.step()
    rows = recording.calls("clip_norm", "clip_value")
    # The gradient is (6, 8) and the bias's 2; imported by name or not, the call is seen.
    assert [(c.call, c.limit, c.target) for c in rows] == [
        ("clip_norm", 0.5, "optimizer0"), ("clip_value", 0.25, "optimizer0"), ("clip_value", 0.125, "optimizer0"),
    ]  # fmt: skip
    assert rows[0].norm == float(norm) == pytest.approx((36 + 64 + 4) ** 0.5)
    assert [c.norm for c in rows[1:]] == [None, None]
    assert recording.run.steps[0].grad_norm == rows[0].norm


@pytest.mark.skipif(clip_grads_with_norm_ is None, reason="torch before 2.6 has no such function")
def test_clipping_to_a_norm_that_code_has_taken(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        (model(torch.tensor([[3.0, 4.0]])) * torch.tensor(2.0)).sum().backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.5, norm)
        clip_grads_with_norm_(list(model.parameters()), max_norm=0.25, total_norm=torch.tensor(0.5))
        optimizer.step()
    rows = recording.calls("clip_norm")
    assert [(c.limit, c.norm, c.target) for c in rows] == [
        (0.5, float(norm), "optimizer0"), (0.25, 0.5, "optimizer0"),
    ]  # fmt: skip
    assert recording.run.steps[0].grad_norm == 0.5


def test_clipping_that_clips_by_another_function_is_told_once(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        for _ in range(2):
            model(torch.tensor([[3.0, 4.0]])).sum().backward()
            clip_grad_norm_(model.parameters(), 0.5)
            with pytest.raises(ValueError, match="float"):
                clip_grad_norm_(model.parameters(), "wide")  # type: ignore[arg-type]
            optimizer.step()
    assert [c.limit for c in recording.calls("clip_norm")] == [0.5, None] * 2


def test_a_generator_of_parameters_is_left_to_the_clipping(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        model(torch.ones(1, 2)).sum().backward()
        torch.nn.utils.clip_grad_value_((p for p in model.parameters()), 0.25)
        assert float(model.weight.grad.abs().max()) == 0.25  # type: ignore[union-attr]
        optimizer.step()
    assert recording.calls("clip_value")[0].target == "optimizer0"


def test_a_call_that_raises(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        loss = model(torch.ones(1, 2)).sum() * torch.tensor(3.0)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        optimizer.step()
    first, second = recording.calls("backward")
    assert first.error is None
    assert str(second.error).startswith("RuntimeError: Trying to backward through the graph a second time")
    assert recording.run.info.status == "complete"


def test_backward_through_torch_autograd_and_on_several_roots(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        a, b = model(torch.ones(1, 2)).sum(), model(torch.zeros(1, 2)).sum()
        torch.autograd.backward([a, b])
        torch.autograd.backward(tensors=model(torch.ones(1, 2)).sum())
        model(torch.ones(3, 2)).backward(torch.ones(3, 1))
        optimizer.step()
    rows = recording.calls("backward")
    assert [c.micro_batch for c in rows] == [0, 1, 2]
    assert rows[0].scaled == "none"
    # The last root is no scalar, so that the step has no loss.
    assert recording.run.steps[0].loss is None
    assert recording.run.steps[0].micro_batches == 3


def test_which_optimizers_a_backward_pass_reaches(recording: Recording) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (first, second)]
    with recording.start(every=1):
        for optimizer in optimizers:
            optimizer.zero_grad()
        second(first(torch.ones(1, 2))).sum().backward()
        second(first(torch.ones(1, 2)).detach()).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert [c.optimizers for c in recording.calls("backward")] == [["optimizer0", "optimizer1"], ["optimizer1"]]


def test_what_it_reaches_is_not_asked_on_other_steps(recording: Recording) -> None:
    model, optimizer = _model()
    with recording.start(every=100):
        for _ in range(4):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert [c.optimizers for c in recording.calls("backward")] == [["optimizer0"]] * 3 + [None]


def test_closures(recording: Recording) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2, lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).square().sum()
        loss.backward()
        return float(loss.detach())

    with recording.start(every=1):
        optimizer.step(closure)
    kinds = [c.call for c in recording.calls()]
    assert kinds[:3] == ["optimizer_step", "zero_grad", "backward"]
    assert len(recording.run.steps) == 1
    assert recording.tensors("weight_grad")


def test_an_update_whose_gradient_a_closure_makes(recording: Recording) -> None:
    model, unused = nn.Linear(2, 1), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([*model.parameters(), unused], lr=0.1)

    def closure() -> float:
        loss = model(torch.ones(1, 2)).square().sum()
        loss.backward()
        return float(loss.detach())

    with recording.start(every=1):
        for _ in range(2):
            optimizer.step(closure)
            optimizer.zero_grad()
    assert [(r.step, r.slot) for r in recording.tensors("update")] == [
        (step, name) for step in range(2) for name in ("weight", "bias")
    ]


@pytest.mark.parametrize("arguments", [(), (None,)])
def test_no_closure(recording: Recording, arguments: tuple[Any, ...]) -> None:
    model, optimizer = _model()
    with recording.start(every=1):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step(*arguments)
    gradients, updates = ([r.seq for r in recording.tensors(role)] for role in ("weight_grad", "update"))
    assert max(gradients) < min(updates)
