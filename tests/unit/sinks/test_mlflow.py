"""MLflow, read back from a local store."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.sinks import MlflowSink
from ampdoctor.sinks import mlflow as sink
from ampdoctor.sinks.pump import Pump
from tests.recorded import write_run
from tests.unit.report.diagnoses import COLLAPSED, UNDERFLOW

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The library, writing to a folder and sending nothing anywhere."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    library = pytest.importorskip("mlflow")
    library.set_tracking_uri((tmp_path / "store").as_uri())
    yield library
    library.set_tracking_uri(None)


def _fail(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


def _artifact(run: Any, name: str) -> str:
    return (Path(run.info.artifact_uri.removeprefix("file://")) / "ampdoctor" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("batch", [2, 1000])
def test_the_active_run_gets_every_step_once_the_finding_and_the_diagnosis(
    mlflow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(sink, "BATCH", batch)
    with mlflow.start_run() as active:
        Pump(write_run(tmp_path / "run"), [MlflowSink()], _fail).finish(COLLAPSED)
        mlflow.log_metric("theirs", 1.0)  # the run is still the user's
    client = mlflow.MlflowClient()
    losses = client.get_metric_history(active.info.run_id, "ampdoctor/loss")
    assert [(m.step, m.value, m.timestamp) for m in losses] == [(0, 3.0, 0), (1, 2.0, 1000), (2, 1.0, 2000)]
    run = client.get_run(active.info.run_id)
    assert run.data.tags["ampdoctor.verdict"] == COLLAPSED.verdict
    name = "gradient-underflow.train_bert_mlm.py.88"
    assert run.data.tags[f"ampdoctor.finding.{name}"] == f"ERROR gradient-underflow: {UNDERFLOW.summary}"
    assert "GradScaler" in _artifact(run, f"findings/{name}.md")
    assert COLLAPSED.verdict in _artifact(run, "diagnosis.txt")
    assert json.loads(_artifact(run, "diagnosis.json"))["verdict"] == COLLAPSED.verdict


def test_a_run_by_its_id_and_ended_where_that_was_asked_for(mlflow: Any, tmp_path: Path) -> None:
    run_id = mlflow.MlflowClient().create_run("0").info.run_id
    Pump(write_run(tmp_path / "run"), [MlflowSink(run_id, finish=True)], _fail).finish(None)
    run = mlflow.MlflowClient().get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["ampdoctor/loss"] == 1.0


@pytest.mark.usefixtures("mlflow")
def test_without_an_active_run_it_says_what_to_call() -> None:
    with pytest.raises(AmpDoctorError, match="no MLflow run is active") as raised:
        MlflowSink()
    assert "mlflow.start_run" in raised.value.hint


def test_a_missing_library_is_told_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(AmpDoctorError) as raised:
        MlflowSink()
    assert raised.value.hint == "pip install mlflow"
