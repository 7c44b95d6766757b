"""What every test of the recorder rests on: errors of ours raise, and nothing of ours stays behind."""

from __future__ import annotations

import gc
import inspect
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo.callback
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks

from ampdoctor.record import background
from ampdoctor.record.background import BackgroundWriter, Step
from ampdoctor.record.recorder import STRICT_VARIABLE, Recorder
from ampdoctor.record.twin.eager import compiles
from tests.record.recording import Recording
from tests.record.training import Training

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def _frozen_heap() -> Iterator[None]:
    """What is imported is no business of the garbage collector's: each of its passes is ten times faster then."""
    Training(precision="fp16").run(1)  # torch imports half of itself when it is first used
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STRICT_VARIABLE, "1")


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    """Optimizers of earlier tests would be taken for the training's own: the recorder looks for those that live."""
    gc.collect()
    torch.manual_seed(0)
    if compiles():
        torch._dynamo.reset()  # a process that has compiled something gets no second opinion unasked
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def _nothing_left_behind(_fresh_process: None) -> Iterator[None]:
    before = hooks_in_place()
    yield
    assert hooks_in_place() == before
    gc.collect()
    assert not [m for m in gc.get_objects() if issubclass(type(m), nn.Module) and _own_hooks(m)]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Records a training of the test's into a folder of its own."""
    return Recording(tmp_path / "run")


@pytest.fixture
def recorder(recording: Recording) -> Iterator[Recorder]:
    """A recorder that has started and examines every step."""
    with recording.start(every=1) as started:
        yield started


def hooks_in_place() -> dict[str, Any]:
    """Return everything in torch that a recorder may touch, as it is now."""
    handler = torch._dynamo.callback.callback_handler
    found: dict[str, Any] = {
        "thresholds of the garbage collector": gc.get_threshold(),
        "torch.autograd.backward": torch.autograd.backward,
        "torch.autograd.grad": torch.autograd.grad,
        "Module.zero_grad": nn.Module.zero_grad,
        "Optimizer.load_state_dict": torch.optim.Optimizer.load_state_dict,
        "Optimizer.zero_grad": torch.optim.Optimizer.zero_grad,
        "torch.compile": torch.compile,
        "_has_any_global_hook": module_hooks._has_any_global_hook,
        "told of compilations": [*handler.start_callbacks, *handler.end_callbacks],
        "autocast.__exit__": torch.autocast.__exit__,
        "compiler's stance": torch._dynamo.eval_frame._stance,
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "sys.meta_path": list(sys.meta_path),
        "sys.excepthook": sys.excepthook,
    }
    found |= _scheduler_steps()
    for name in dir(torch.amp.GradScaler):
        found[f"GradScaler.{name}"] = inspect.getattr_static(torch.amp.GradScaler, name)
    for holder in (torch.nn.utils, torch.nn.utils.clip_grad, sys.modules["torch.nn.utils.clip_grad"]):
        for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "_clip_grads_with_norm_"):
            found[f"{holder.__name__}.{name}"] = getattr(holder, name, None)
    for holder in (module_hooks, optimizer_hooks):
        for name, value in vars(holder).items():
            if name.startswith("_global_") and hasattr(value, "items"):
                found[f"{holder.__name__}.{name}"] = dict(value)
    return found


def _scheduler_steps() -> dict[str, Any]:
    kinds = vars(torch.optim.lr_scheduler).items()
    return {
        f"{name}.step": vars(kind)["step"] for name, kind in kinds if isinstance(kind, type) and "step" in vars(kind)
    }


def _own_hooks(module: nn.Module) -> list[str]:
    """Return the names of the hook dictionaries of `module` that hold something of ours."""
    return [
        name
        for name, hooks in vars(module).items()
        if name.endswith("_hooks") and isinstance(hooks, dict)
        if any("ampdoctor" in str(getattr(h, "__module__", "")) for h in hooks.values())
    ]


@pytest.fixture
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step waits until it is written: for tests of what happens from one to the next."""
    put = BackgroundWriter.put

    def put_and_wait(self: BackgroundWriter, step: Step, *, soon: bool) -> None:
        put(self, step, soon=soon)
        while self._rows and self._error is None:
            time.sleep(0.001)

    monkeypatch.setattr(background, "SOON", 0.0)
    monkeypatch.setattr(background, "LATER", 0.0)
    monkeypatch.setattr(BackgroundWriter, "put", put_and_wait)
