"""Three steps of a loop with Accelerate."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.integrations.tiny import STEPS, Tiny, batches, framework, loaded, scaler
from tests.record.training import seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.record.recording import Recording

_loaded = loaded("accelerate", "ampdoctor.integrations.accelerate")

pytestmark = pytest.mark.filterwarnings("default")  # the framework's own


def ours() -> Any:
    return framework("ampdoctor.integrations.accelerate")


@pytest.fixture(autouse=True)
def _fresh_accelerator() -> Iterator[None]:
    yield
    framework("accelerate.state").AcceleratorState._reset_state(reset_partial_state=True)


def trained(watched: Any, fails_on: int | None = None, **settings: Any) -> Tiny:
    """Train in FP16, which Accelerate gives to accelerators only: so what it makes there is made here."""
    seed()
    tiny = Tiny(fails_on)
    accelerator = framework("accelerate").Accelerator(cpu=True, mixed_precision="fp16")
    accelerator.native_amp, accelerator.scaler = True, scaler()
    model, optimizer = accelerator.prepare(tiny, torch.optim.AdamW(tiny.parameters(), lr=1e-3))
    with watched(accelerator, **settings):
        for batch in batches():
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
    return tiny


def test_three_steps_hold_what_is_declared(recording: Recording) -> None:
    trained(ours().watch, out=recording.folder, report=False)
    assert ours().PROVIDES.missing(recording.run) == []
    assert [(s.micro_batches, s.loss_scale, s.applied) for s in recording.run.steps] == [(1, 1024.0, True)] * STEPS
    assert recording.run.info.status == "complete"
    assert {m.module for m in recording.run.modules if m.optimizer == "optimizer0"} == {"first", "last"}


def test_the_training_is_the_same(recording: Recording) -> None:
    alone = trained(lambda _: nullcontext()).outcome()
    assert trained(ours().watch, out=recording.folder, every=1, report=False).outcome().differences(alone) == []


def test_an_exception_ends_the_recording(recording: Recording) -> None:
    with pytest.raises(ValueError, match="got wrong"):
        trained(ours().watch, fails_on=2, out=recording.folder, report=False)
    assert recording.run.info.status == "crashed"
    assert len(recording.run.steps) == 2


def test_wrappers_of_optimizers_hide_no_step(recording: Recording) -> None:
    """Found by itself too, the wrapper would be waited for: it is of an optimizer's class and never steps."""
    trained(lambda _: recording.start(every=1))
    assert [s.micro_batches for s in recording.run.steps] == [1] * STEPS
    assert {c.target for c in recording.calls("zero_grad", "scaler_step")} == {"optimizer0"}


def test_processes_but_the_main_one_record_nothing(recording: Recording) -> None:
    class Another:
        is_main_process = False

    with ours().watch(Another(), out=recording.folder) as recorder:
        assert recorder is None
    assert not recording.folder.exists()
