"""Three steps of Hugging Face's Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.tiny import BATCH, STEPS, Tiny, examples, framework, loaded, scaler
from tests.record.training import seed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.record.recording import Recording

_loaded = loaded("transformers", "accelerate", "ampdoctor.integrations.transformers")

pytestmark = pytest.mark.filterwarnings("default")  # the framework's own


def ours() -> Any:
    return framework("ampdoctor.integrations.transformers")


@pytest.fixture(autouse=True)
def _fresh_accelerator() -> Iterator[None]:
    yield
    framework("accelerate.state").AcceleratorState._reset_state(reset_partial_state=True)


def trainer_of(model: Tiny, folder: Path, callbacks: list[Any]) -> Any:
    """Return a Trainer in FP16, which Accelerate gives to accelerators only: so what it makes there is made here."""
    arguments = framework("transformers").TrainingArguments(
        output_dir=str(folder / "out"), max_steps=STEPS, per_device_train_batch_size=BATCH, report_to=[],
        save_strategy="no", use_cpu=True, fp16=True, disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    trainer = framework("transformers").Trainer(
        model=model, args=arguments, train_dataset=examples(), callbacks=callbacks
    )
    trainer.accelerator.native_amp, trainer.accelerator.scaler = True, scaler()
    return trainer


def trained(folder: Path, callbacks: list[Any], fails_on: int | None = None) -> Tiny:
    seed()
    model = Tiny(fails_on)
    trainer_of(model, folder, callbacks).train()
    return model


def test_three_steps_hold_what_is_declared(recording: Recording, tmp_path: Path) -> None:
    trained(tmp_path, [ours().AmpDoctorCallback(out=recording.folder, report=False)])
    assert ours().PROVIDES.missing(recording.run) == []
    assert [(s.micro_batches, s.loss_scale, s.applied) for s in recording.run.steps] == [(1, 1024.0, True)] * STEPS
    assert recording.run.info.status == "complete"
    assert {m.module: m.optimizer for m in recording.run.modules} == {
        "": None, "first": "optimizer0", "last": "optimizer0",
    }  # fmt: skip


def test_the_training_is_the_same(recording: Recording, tmp_path: Path) -> None:
    alone = trained(tmp_path, []).outcome()
    watched = trained(tmp_path, [ours().AmpDoctorCallback(out=recording.folder, every=1, report=False)]).outcome()
    assert watched.differences(alone) == []


def test_an_exception_ends_the_recording(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got wrong"):
        trained(tmp_path, [ours().AmpDoctorCallback(out=recording.folder, report=False)], fails_on=2)
    assert recording.run.info.status == "crashed"
    assert recording.run.info.exception == "ValueError: what the user has got wrong"
    assert len(recording.run.steps) == 2


def test_an_exception_is_heard_by_a_callback_that_is_added_later(recording: Recording, tmp_path: Path) -> None:
    trainer = trainer_of(Tiny(fails_on=2), tmp_path, [])
    trainer.add_callback(ours().AmpDoctorCallback(out=recording.folder, report=False))
    with pytest.raises(ValueError, match="got wrong"):
        trainer.train()
    assert recording.run.info.exception == "ValueError: what the user has got wrong"
    assert len(recording.run.steps) == 2


def test_each_training_is_recorded_by_itself(recording: Recording, tmp_path: Path) -> None:
    seed()
    trainer = trainer_of(Tiny(), tmp_path, [ours().AmpDoctorCallback(out=recording.folder, report=False)])
    for folder in (recording.folder, recording.folder.with_name("run-2")):
        trainer.train()
        assert (folder / "run.json").is_file()


def test_the_wrapped_train_can_still_be_asked_for_its_parameters(tmp_path: Path) -> None:
    trainer = trainer_of(Tiny(), tmp_path, [ours().AmpDoctorCallback()])
    assert trainer.train.__name__ == "train"
    assert "train" not in vars(framework("transformers").Trainer(model=Tiny(), args=trainer.args))
