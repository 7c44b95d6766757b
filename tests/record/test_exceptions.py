"""Every exception that passes a seam is one row, and nothing of it is kept."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from ampdoctor.record.recorder import Recorder
    from ampdoctor.trace.schema import CallRow
    from tests.record.recording import Recording


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).half().masked_fill(x > 0, -1e9)


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, weight = ctx.saved_tensors
        return gradients[0] @ weight.t(), x.t() @ gradients[0]


def errors(recording: Recording) -> list[CallRow]:
    return [row for row in recording.run.calls if row.error]


def test_an_exception_that_leaves_an_autocast_block_is_noted_once(recorder: Recorder, recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(3, 3), Broken())
    with pytest.raises(RuntimeError), torch.autocast("cpu"), torch.autocast("cpu", torch.float16):
        model(torch.ones(2, 3).half())
    recorder.stop()
    (row,) = errors(recording)
    assert row.call == "exception"
    assert (row.error or "").startswith("RuntimeError: value cannot be converted to type c10::Half")
    assert (row.error_function or "").endswith("forward")
    assert (row.error_file or "").endswith("test_exceptions.py")
    assert row.error_module == "1"
    assert row.autocast == row.last_autocast == "float16"
    assert row.anomaly_mode is False


def test_an_exception_that_leaves_a_module_is_noted_without_autocast(recorder: Recorder, recording: Recording) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).half())
    with pytest.raises(RuntimeError, match="same dtype"):
        model(torch.ones(2, 3))
    recorder.stop()
    (row,) = errors(recording)
    assert (row.call, row.error_module, row.autocast) == ("exception", "1", None)
    assert (row.error_file, row.error_line) == (row.file, row.line)


def test_a_module_called_while_an_exception_is_handled_tells_nothing(recorder: Recorder, recording: Recording) -> None:
    try:
        raise ValueError("of the user's own")
    except ValueError:
        nn.Linear(3, 3)(torch.ones(2, 3)).sum().backward()
    recorder.stop()
    assert errors(recording) == []


def test_a_backward_pass_tells_the_custom_function_and_the_loss(recorder: Recorder, recording: Recording) -> None:
    x, weight = torch.ones(2, 3, requires_grad=True), torch.ones(3, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = Plain.apply(x, weight).float().sum()  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="same dtype"), torch.autograd.set_detect_anomaly(True):
        loss.backward()
    recorder.stop()
    (row,) = errors(recording)
    assert (row.call, row.custom_function) == ("backward", "Plain.backward")
    assert (row.last_autocast, row.autocast, row.anomaly_mode) == ("bfloat16", None, True)
    assert row.loss == 18.0


def test_control_flow_is_no_exception(recorder: Recorder, recording: Recording) -> None:
    def batches() -> Any:
        with torch.autocast("cpu"):
            yield 1
            yield 2

    made = batches()
    next(made)
    made.close()  # GeneratorExit
    for kind in (StopIteration, KeyboardInterrupt):
        with pytest.raises(kind), torch.autocast("cpu"):
            raise kind
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    with torch.autocast("cpu"):
        checkpoint(model, torch.ones(2, 3), use_reentrant=False).sum().backward()
    recorder.stop()
    assert errors(recording) == []


def test_exceptions_that_repeat_themselves_do_not_pile_up(recorder: Recorder, recording: Recording) -> None:
    for _ in range(100):
        with pytest.raises(LookupError), torch.autocast("cpu"):
            raise LookupError("again")
    recorder.stop()
    assert 1 <= len(errors(recording)) <= 10


def test_nothing_of_an_exception_is_kept(recorder: Recorder) -> None:
    class HeldError(Exception):
        pass

    def fail() -> weakref.ref[HeldError]:
        held = HeldError("with all its frames")
        try:
            with torch.autocast("cpu"):
                raise held
        except HeldError:
            return weakref.ref(held)
        finally:
            del held

    kept = fail()
    gc.collect()
    assert kept() is None
    assert recorder is not None


def test_the_exception_that_ends_a_run_is_noted_with_its_place(recording: Recording) -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with pytest.raises(RuntimeError, match="same dtype"), recording.start():  # noqa: PT012
        weight.sum().backward()
        optimizer.step()
        torch.ones(2, 3) @ torch.ones(3, 3).half()
    (row,) = errors(recording)
    assert row.call == "exception"
    assert (row.error_file or "").endswith("test_exceptions.py")
    assert recording.run.info.exception == row.error


def test_a_script_that_has_not_trained_leaves_no_run(recording: Recording) -> None:
    with pytest.raises(ValueError, match="bad"), recording.start():
        raise ValueError("bad arguments")
    assert not (recording.folder / "calls-0.arrows").exists()


def test_an_optimizer_is_described_where_its_first_unscaling_fails(recorder: Recorder, recording: Recording) -> None:
    weight = nn.Parameter(torch.ones(3).half())
    optimizer = torch.optim.Adam([weight])
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(weight.float().sum()).backward()
    with pytest.raises(ValueError, match="FP16 gradients"):
        scaler.unscale_(optimizer)
    recorder.stop()
    (row,) = errors(recording)
    assert (row.call, row.target) == ("unscale", "optimizer0")
    assert [o.type for o in recording.run.optimizers] == ["Adam"]
