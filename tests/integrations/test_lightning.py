"""Three steps of Lightning's Trainer, by either of its packages, and of Fabric."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.integrations.tiny import STEPS, Tiny, batches, framework, loaded, scaler
from tests.record.training import seed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.record.recording import Recording

_loaded = loaded("lightning.pytorch", "pytorch_lightning", "ampdoctor.integrations.lightning")

pytestmark = pytest.mark.filterwarnings("default")  # the framework's own


def ours() -> Any:
    return framework("ampdoctor.integrations.lightning")


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    return framework(request.param)


@pytest.fixture
def fabric_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    return framework("lightning.fabric")


def trained(package: Any, callbacks: list[Any], fails_on: int | None = None) -> Tiny:
    class Lit(package.LightningModule):  # type: ignore[misc]
        def __init__(self, net: Tiny) -> None:
            super().__init__()
            self.net = net

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    seed()
    model = Tiny(fails_on)
    precision = package.plugins.MixedPrecision("16-mixed", "cpu", scaler())
    trainer = package.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks, plugins=[precision],
    )  # fmt: skip
    trainer.fit(Lit(model), torch.utils.data.DataLoader(batches(), batch_size=None))  # type: ignore[arg-type]
    return model


def trained_by_fabric(package: Any, callback: Any, *, ends: bool = True) -> Tiny:
    seed()
    tiny = Tiny()
    fabric = package.Fabric(
        accelerator="cpu", devices=1, callbacks=[callback] if callback else [],
        plugins=[package.plugins.MixedPrecision("16-mixed", "cpu", scaler())],
    )  # fmt: skip
    model, optimizer = fabric.setup(tiny, torch.optim.AdamW(tiny.parameters(), lr=1e-3))
    for batch in batches():
        fabric.backward(model(**batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()
    if ends:
        fabric.call("on_train_end")
    return tiny


def test_three_steps_hold_what_is_declared(package: Any, recording: Recording) -> None:
    trained(package, [ours().AmpDoctorCallback(out=recording.folder, report=False)])
    assert ours().PROVIDES.missing(recording.run) == []
    assert [(s.micro_batches, s.loss_scale, s.applied) for s in recording.run.steps] == [(1, 1024.0, True)] * STEPS
    assert recording.run.info.status == "complete"
    assert {m.module for m in recording.run.modules if m.optimizer == "optimizer0"} == {"net.first", "net.last"}


def test_the_training_is_the_same(package: Any, recording: Recording) -> None:
    alone = trained(package, []).outcome()
    watched = trained(package, [ours().AmpDoctorCallback(out=recording.folder, every=1, report=False)]).outcome()
    assert watched.differences(alone) == []


def test_an_exception_ends_the_recording(package: Any, recording: Recording) -> None:
    with pytest.raises(ValueError, match="got wrong"):
        trained(package, [ours().AmpDoctorCallback(out=recording.folder, report=False)], fails_on=2)
    assert recording.run.info.status == "crashed"
    assert recording.run.info.exception == "ValueError: what the user has got wrong"
    assert len(recording.run.steps) == 2


def test_three_steps_of_fabric_hold_what_is_declared(fabric_package: Any, recording: Recording) -> None:
    trained_by_fabric(fabric_package, ours().AmpDoctorCallback(out=recording.folder, report=False))
    assert ours().FABRIC_PROVIDES.missing(recording.run) == []
    assert [(s.micro_batches, s.loss_scale, s.applied) for s in recording.run.steps] == [(1, 1024.0, True)] * STEPS
    assert {m.module for m in recording.run.modules if m.optimizer == "optimizer0"} == {"first", "last"}


def test_a_training_by_fabric_is_the_same(fabric_package: Any, recording: Recording) -> None:
    alone = trained_by_fabric(fabric_package, None).outcome()
    callback = ours().AmpDoctorCallback(out=recording.folder, every=1, report=False)
    assert trained_by_fabric(fabric_package, callback).outcome().differences(alone) == []


def test_a_second_model_of_fabric_goes_by_its_variable(fabric_package: Any, recording: Recording) -> None:
    callback = ours().AmpDoctorCallback(out=recording.folder, every=1, report=False)
    fabric = fabric_package.Fabric(accelerator="cpu", devices=1, callbacks=[callback])
    model, critic = Tiny(), Tiny()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    critic, second = fabric.setup(critic, torch.optim.SGD(critic.parameters(), lr=0.1))
    for one, stepped in ((model, optimizer), (critic, second)):
        fabric.backward(one(**batches()[0])["loss"])
        stepped.step()
    fabric.call("on_train_end")
    assert {r.module for r in recording.run.tensors("weight_grad")} == {
        "first", "last", "critic.first", "critic.last",
    }  # fmt: skip


def test_a_block_around_fabrics_loop_ends_the_recording(fabric_package: Any, recording: Recording) -> None:
    callback = ours().AmpDoctorCallback(out=recording.folder, report=False)

    def script() -> None:
        with callback:
            trained_by_fabric(fabric_package, callback, ends=False)
            raise KeyError("evaluation")

    with pytest.raises(KeyError):
        script()
    assert recording.run.info.status == "crashed"
    assert len(recording.run.steps) == STEPS


def test_a_callback_reaches_other_processes(package: Any, tmp_path: Path) -> None:
    made = ours().AmpDoctorCallback(every=7)
    for copied in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert isinstance(copied, package.Callback)
        assert copied._recordings.settings == {"every": 7}
