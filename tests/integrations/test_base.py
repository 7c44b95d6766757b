"""What integrations have in common, without any framework."""

from __future__ import annotations

import logging
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import ampdoctor.integrations
from ampdoctor.errors import OutputExistsError
from ampdoctor.integrations.base import WHOLE_STEP, Recordings
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.schema import TABLES
from tests.integrations.tiny import Tiny, batches, framework
from tests.record.training import seed

if TYPE_CHECKING:
    from tests.record.recording import Recording

LEAVES = [m.name for m in pkgutil.iter_modules(ampdoctor.integrations.__path__) if m.name != "base"]


@pytest.fixture(scope="module", params=LEAVES)
def leaf(request: pytest.FixtureRequest) -> Any:
    """An integration, imported before the test looks at the process: frameworks change it."""
    return framework(f"ampdoctor.integrations.{request.param}")


def test_each_integration_declares_what_it_provides_and_is_tried(leaf: Any) -> None:
    known = {f"{table.name}.{column}" for table in TABLES.values() for column in table.arrow.names}
    assert leaf.PROVIDES.columns <= known
    assert Path(__file__).with_name(f"test_{leaf.__name__.rpartition('.')[2]}.py").is_file()


def test_what_is_declared_and_not_there_is_named() -> None:
    run = RunBuilder().step(loss=1.0).call("backward").build()
    missing = WHOLE_STEP.missing(run)
    assert {"tensors.loss_scale", "calls.call = update", "scaler.event = seen"} <= set(missing)
    assert not {"steps.loss", "calls.call = backward"} & set(missing)


def test_a_wrong_setting_is_told_before_the_first_training(recording: Recording) -> None:
    recording.folder.mkdir()
    (recording.folder / "notes.txt").touch()
    with pytest.raises(OutputExistsError):
        Recordings({"out": recording.folder}).begin()


def test_a_later_training_goes_on_without_a_recording(recording: Recording, caplog: pytest.LogCaptureFixture) -> None:
    recordings = Recordings({"out": recording.folder, "report": False})
    recordings.begin()
    recording.folder.with_name("run-2").mkdir()
    (recording.folder.with_name("run-2") / "notes.txt").touch()
    with caplog.at_level(logging.WARNING, logger="ampdoctor"):
        recordings.begin()
    assert recordings.recorder is None
    assert "run-2 is not empty" in caplog.text


def test_a_new_training_ends_the_recording_of_the_one_before(recording: Recording) -> None:
    recordings = Recordings({"out": recording.folder, "report": False})
    seed()
    model = Tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        recordings.begin(model, optimizer)
        for batch in batches():
            model(**batch)["loss"].backward()
            optimizer.step()
    recordings.end()
    for folder in (recording.folder, recording.folder.with_name("run-2")):
        run = ampdoctor.open_run(folder)
        assert (run.info.status, len(run.steps)) == ("complete", 3)
