"""What is recorded of `torch.autocast`: its blocks, who runs in them, and how old the copies of weights are."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.record.training import Training

if TYPE_CHECKING:
    from ampdoctor.record.recorder import Recorder
    from tests.record.recording import Recording

BF16 = torch.bfloat16


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _linear() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_a_block_is_told_with_its_settings_and_its_end(recording: Recording) -> None:
    model, optimizer = _linear()
    with recording.start(every=1):
        with torch.autocast("cpu", dtype=BF16, cache_enabled=False):
            loss = model(torch.ones(3, 4)).sum()
        _step(model, optimizer, loss)
    (enter,) = recording.calls("autocast_enter")
    (left,) = recording.calls("autocast_exit")
    assert (enter.device_type, enter.dtype, enter.autocast) == ("cpu", "bfloat16", "bfloat16")
    assert (enter.asked, enter.cache_enabled, enter.depth) == (True, False, 0)
    assert enter.target == left.target
    assert enter.seq < left.seq
    assert left.module_calls == 1
    assert (left.nodes or 0) > 0
    assert enter.file is not None
    assert enter.file.endswith("test_autocast.py")


def test_blocks_within_blocks_and_blocks_without_gradients(recording: Recording) -> None:
    model, optimizer = _linear()
    with recording.start(every=1):
        with torch.autocast("cpu", dtype=BF16), torch.autocast("cpu", enabled=False):
            loss = model(torch.ones(3, 4)).sum()
        with torch.autocast("cpu", dtype=BF16), torch.no_grad():
            torch.mm(torch.ones(3, 4), torch.ones(4, 3))
        _step(model, optimizer, loss)
    assert [(c.depth, c.asked) for c in recording.calls("autocast_enter")] == [
        (0, True), (1, False), (0, True),
    ]  # fmt: skip
    assert [c.nodes == 0 for c in recording.calls("autocast_exit")] == [False, False, True]


def test_the_first_block_of_each_line_in_a_step(recording: Recording) -> None:
    model, optimizer = _linear()
    with recording.start(every=1):
        for _ in range(2):
            for _ in range(500):
                with torch.no_grad(), torch.autocast("cpu", dtype=BF16):
                    model(torch.ones(3, 4))
            _step(model, optimizer, model(torch.ones(3, 4)).sum())
    assert len(recording.calls("autocast_enter")) == 2
    assert len(recording.calls("autocast_exit")) == 2


def test_an_evaluation_after_the_last_step_is_looked_at_once(recording: Recording) -> None:
    model, optimizer = _linear()
    other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with recording.start(every=100):
        for _ in range(5):
            with torch.autocast("cpu", dtype=BF16):
                loss = model(torch.ones(3, 4)).sum()
            _step(model, optimizer, loss)
        for _ in range(2):
            with torch.no_grad(), torch.autocast("cpu", dtype=BF16):
                for _ in range(3):
                    other(torch.ones(3, 4))
                with torch.autocast("cpu", dtype=BF16):
                    other(torch.ones(3, 4))
            other(torch.ones(3, 4))
    (left,) = [c for c in recording.calls("autocast_exit") if c.step == 5]
    assert left.module_calls == 4
    rows = [r for r in recording.tensors("activation") if r.step == 5]
    assert {(r.autocast, r.grad_enabled) for r in rows if r.slot == "out"} == {("bfloat16", False)}
    assert len([m for m in recording.run.modules if m.module.endswith((".0", ".1"))]) == 2


def test_few_evaluations_are_looked_at_and_no_step_is_ended_by_them(recording: Recording) -> None:
    model, optimizer = _linear()
    with recording.start(every=100):
        for _ in range(5):
            _step(model, optimizer, model(torch.ones(3, 4)).sum())
        for number in range(9):
            code = "\n" * number + "with torch.no_grad(), torch.autocast('cpu', dtype=torch.bfloat16): model(x)"
            exec(code, {"torch": torch, "model": model, "x": torch.ones(3, 4)})
        _step(model, optimizer, model(torch.ones(3, 4)).sum())
    assert [c.line for c in recording.calls("autocast_enter")] == [1, 2, 3, 4]
    # Each has rows of its own, though all are of one step.
    outs = [r for r in recording.tensors("activation") if r.step == 5 and r.slot == "out" and not r.grad_enabled]
    assert len(outs) == 4
    assert len(recording.run.steps) == 6


def test_nothing_is_told_of_a_step_that_is_not_examined(recording: Recording) -> None:
    model, optimizer = _linear()
    with recording.start(every=100):
        for _ in range(6):
            with torch.autocast("cpu", dtype=BF16):
                loss = model(torch.ones(3, 4)).sum()
            _step(model, optimizer, loss)
    assert [c.step for c in recording.calls("autocast_enter")] == [0, 1, 2]


def test_a_block_that_torch_refuses_was_asked_for(recording: Recording) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    model, optimizer = _linear()
    with recording.start(every=1):
        for enabled in (True, False):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                block = torch.autocast("cuda", enabled=enabled)
            # The warning names the line of the user, and not one of ours.
            assert [w.filename for w in told] == [__file__] * enabled
            with block:
                loss = model(torch.ones(3, 4)).sum()
        _step(model, optimizer, loss)
    assert [(c.asked, c.autocast) for c in recording.calls("autocast_enter")] == [
        (True, None), (False, None),
    ]  # fmt: skip


def test_a_decorated_function_and_the_older_names(recording: Recording) -> None:
    model, optimizer = _linear()

    def total(x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = model(x).sum()
        return made

    loss_of = torch.amp.autocast("cpu", dtype=BF16)(total)

    with recording.start(every=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        older = torch.cuda.amp.autocast(enabled=False)
        loss = loss_of(torch.ones(3, 4))
        with older:
            _step(model, optimizer, loss)
    assert [c.device_type for c in recording.calls("autocast_enter")] == ["cpu", "cuda"]


@pytest.mark.parametrize("cache", [True, False])
def test_copies_of_weights_that_are_older_than_the_weights(recording: Recording, cache: bool) -> None:
    model, optimizer = _linear()
    with recording.start(every=1), torch.autocast("cpu", dtype=BF16, cache_enabled=cache):
        for _ in range(3):
            _step(model, optimizer, model(torch.ones(3, 4)).sum())
    stale = [c.stale_casts for c in recording.calls("backward")]
    assert stale == ([0, 2, 2] if cache else [0, 0, 0])


def test_copies_that_micro_batches_share_are_not_old(recording: Recording) -> None:
    model, optimizer = _linear()
    with recording.start(every=1):
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=BF16):
                losses = [model(torch.ones(3, 4)).sum() for _ in range(2)]
            for loss in losses:
                loss.backward()
            optimizer.step()
    assert {c.stale_casts for c in recording.calls("backward")} == {0}


def test_copies_that_worker_threads_make_anew_are_not_old(recording: Recording) -> None:
    model, optimizer = _linear()

    def loss_of() -> torch.Tensor:
        with torch.autocast("cpu", dtype=BF16):
            made: torch.Tensor = model(torch.ones(3, 4)).sum()
            return made

    with recording.start(every=1):
        for _ in range(3):
            with ThreadPoolExecutor(1) as pool:  # a new thread, in which autograd counts from 0
                loss = pool.submit(loss_of).result()
            _step(model, optimizer, loss)
    assert [c.stale_casts for c in recording.calls("backward")] == [0, 0, 0]


def test_a_ratio_of_likelihoods(recording: Recording) -> None:
    model, optimizer = _linear()
    x = torch.ones(3, 4)
    with recording.start(every=1):
        old = model(x).log_softmax(-1).detach()
        _step(model, optimizer, torch.exp(model(x).log_softmax(-1) - old).clamp(0.5, 2).sum())
        new = model(x).log_softmax(-1)
        _step(model, optimizer, (new - old - 0.25).sum(-1).exp().mean())
        _step(model, optimizer, model(x).exp().sum())
    errors = [c.ratio_error for c in recording.calls("backward")]
    assert errors[0] == 0.0
    assert errors[1] is not None
    assert errors[1] > 0.1
    assert errors[2] is None


def test_modules_that_other_threads_call(recording: Recording) -> None:
    model, optimizer = _linear()
    with recording.start(every=1), ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            with torch.autocast("cpu", dtype=BF16):
                loss = pool.submit(model, torch.ones(3, 4)).result().sum()
            _step(model, optimizer, loss)
    # The pool's thread was there first; the one that does more than call modules is followed.
    assert len(recording.run.steps) == 2
    (called,) = recording.calls("threaded_call", step=1)
    assert (called.autocast, called.dtype, called.optimizers) == (None, "float32", ["optimizer0"])


def test_entering_autocast_alone_is_no_training(recording: Recording) -> None:
    model, optimizer = _linear()

    def train() -> None:
        for _ in range(3):
            _step(model, optimizer, model(torch.ones(3, 4)).sum())

    with recording.start(every=1), torch.autocast("cpu", dtype=BF16):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert len(recording.run.steps) == 3
    assert {t.autocast for t in recording.tensors("activation")} == {None}


def test_calls_without_gradients_are_told_once_per_precision(recording: Recording) -> None:
    model, optimizer = _linear()
    with recording.start(every=1):
        for dtype in (None, BF16, None, BF16):
            with torch.no_grad(), torch.autocast("cpu", dtype=dtype or BF16, enabled=dtype is BF16):
                model(torch.ones(3, 4))
        _step(model, optimizer, model(torch.ones(3, 4)).sum())
    outputs = [t for t in recording.tensors("activation", slot="out") if not t.grad_enabled]
    assert [t.dtype for t in outputs] == ["float32", "bfloat16"]


def test_a_block_entered_before_the_recorder_came(recording: Recording) -> None:
    model, optimizer = _linear()
    block = torch.autocast("cpu", dtype=BF16)
    with block:
        recorder = recording.start(every=1).start()
        loss = model(torch.ones(3, 4)).sum()
    _step(model, optimizer, loss)
    recorder.stop()
    assert recording.calls("autocast_enter", "autocast_exit") == []


def test_the_device_of_modules_and_scalers(recording: Recording) -> None:
    with recording.start(every=1):
        Training(precision="fp16").run(1)
    assert {m.device for m in recording.run.modules} <= {"cpu", None}
    assert [e.device_type for e in recording.events(event="seen")] == ["cpu"]


def test_nothing_stays_on_autocast(recorder: Recorder) -> None:
    assert hasattr(torch.autocast.__enter__, "__wrapped__")
    recorder.stop()
    assert not hasattr(torch.autocast.__enter__, "__wrapped__")
    assert not hasattr(torch.autocast.__exit__, "__wrapped__")
    assert not hasattr(torch.cuda.amp.common.amp_definitely_not_available, "__wrapped__")
