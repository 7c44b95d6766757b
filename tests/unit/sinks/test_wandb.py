"""Weights & Biases, read back from the file of an offline run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.sinks import WandbSink
from ampdoctor.sinks.pump import Pump
from tests.recorded import write_run
from tests.unit.report.diagnoses import COLLAPSED, UNDERFLOW
from tests.unit.sinks.wandb_file import items, records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

wandb: Any = pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_CONSOLE", "off")
    yield
    wandb.teardown()


def _fail(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


def _kind() -> type[Any]:
    kind: type[Any] = pytest.importorskip("wandb.proto.wandb_internal_pb2").Record
    return kind


def _records(folder: Path) -> dict[str, list[Any]]:
    wandb.teardown()  # the process that writes has written, once it has ended
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    found: dict[str, list[Any]] = {}
    for record in records(file, _kind()):
        kind = record.WhichOneof("record_type")
        found.setdefault(kind, []).append(getattr(record, kind))
    return found


def test_the_active_run_gets_every_step_once_the_alert_and_the_verdict(tmp_path: Path) -> None:
    theirs = wandb.init(project="theirs")
    theirs.log({"their_loss": 1.0})
    Pump(write_run(tmp_path / "run"), [WandbSink()], _fail).finish(COLLAPSED)
    theirs.log({"their_loss": 0.5})  # the run is still the user's
    theirs.finish()
    found = _records(tmp_path)
    rows = [items(history.item) for history in found["history"]]
    ours = [row for row in rows if "ampdoctor/step" in row]
    assert [row["ampdoctor/step"] for row in ours] == [0, 1, 2]
    assert [row["ampdoctor/loss"] for row in ours] == [3.0, 2.0, 1.0]
    assert [row["their_loss"] for row in rows if "their_loss" in row] == [1.0, 0.5]
    (alert,) = found["alert"]
    assert (alert.title, alert.level) == ("ampdoctor: ERROR gradient-underflow", "ERROR")
    assert UNDERFLOW.summary in alert.text
    summary: dict[str, Any] = {}
    for update in found["summary"]:
        summary |= items(update.update)
    assert summary["ampdoctor/verdict"] == COLLAPSED.verdict
    assert summary["ampdoctor/faults"] == 1


def test_ours_are_drawn_against_their_own_step(tmp_path: Path) -> None:
    with wandb.init(project="theirs") as run:
        WandbSink(run)
    metrics = {m.name or m.glob_name: m for m in _records(tmp_path)["metric"]}
    assert metrics["ampdoctor/*"].step_metric == "ampdoctor/step"


def test_a_run_beside_theirs_leaves_their_steps_alone(tmp_path: Path) -> None:
    theirs = wandb.init(project="theirs")
    theirs.log({"their_loss": 1.0}, step=0)
    ours = wandb.init(project="theirs", reinit="create_new")
    Pump(write_run(tmp_path / "run"), [WandbSink(ours, finish=True)], _fail).finish(None)
    theirs.log({"their_loss": 0.5}, step=1)
    theirs.finish()
    wandb.teardown()
    (file,) = tmp_path.glob(f"wandb/offline-run-*/run-{theirs.id}.wandb")
    rows = [items(r.history.item) for r in records(file, _kind()) if r.WhichOneof("record_type") == "history"]
    assert [row["their_loss"] for row in rows] == [1.0, 0.5]


def test_without_an_active_run_it_says_what_to_call() -> None:
    with pytest.raises(AmpDoctorError, match="no W&B run is active") as raised:
        WandbSink()
    assert "wandb.init" in raised.value.hint


def test_a_missing_library_is_told_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(AmpDoctorError) as raised:
        WandbSink()
    assert raised.value.hint == "pip install wandb"


def test_a_folder_that_wandb_left_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir(exist_ok=True)
    monkeypatch.delitem(sys.modules, "wandb")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(AmpDoctorError, match="a mere folder") as raised:
        WandbSink()
    assert raised.value.hint == "pip install wandb"
