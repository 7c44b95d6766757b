"""TensorBoard, read back from its event files."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.sinks import TensorBoardSink
from ampdoctor.sinks.pump import Pump
from tests.recorded import write_run
from tests.unit.report.diagnoses import COLLAPSED

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("tensorboard")

LOSSES = [3.0, math.nan, 1.0]


def _fail(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


def _events(folder: Path) -> Any:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder))
    events.Reload()
    return events


def _text(events: Any, tag: str) -> tuple[int, str]:
    (event,) = events.Tensors(f"{tag}/text_summary")
    return event.step, event.tensor_proto.string_val[0].decode()


def _check(logs: Path) -> None:
    events = _events(logs)
    losses = events.Scalars("ampdoctor/loss")
    assert [e.step for e in losses] == [0, 1, 2]
    assert [e.wall_time for e in losses] == [0.0, 1.0, 2.0]
    assert [str(e.value) for e in losses] == ["3.0", "nan", "1.0"]
    step, shown = _text(events, "ampdoctor/finding/gradient-underflow.train_bert_mlm.py.88")
    assert step == 0
    assert "GradScaler" in shown
    assert "61.2 % of the elements are lost. (estimated)" in shown
    assert COLLAPSED.verdict in _text(events, "ampdoctor/diagnosis")[1]


def test_a_folder_gets_an_event_file(tmp_path: Path) -> None:
    Pump(write_run(tmp_path / "run", LOSSES), [TensorBoardSink(tmp_path / "logs")], _fail).finish(COLLAPSED)
    _check(tmp_path / "logs")


def test_a_writer_of_the_user_is_used_and_left_open(tmp_path: Path) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(str(tmp_path / "logs"))
    Pump(write_run(tmp_path / "run", LOSSES), [TensorBoardSink(writer)], _fail).finish(COLLAPSED)
    writer.add_scalar("theirs", 1.0, 0)
    writer.close()
    _check(tmp_path / "logs")
    assert len(_events(tmp_path / "logs").Scalars("theirs")) == 1


def test_the_text_plugin_knows_ours(tmp_path: Path) -> None:
    Pump(write_run(tmp_path / "run"), [TensorBoardSink(tmp_path / "logs")], _fail).finish(COLLAPSED)
    plugin = _events(tmp_path / "logs").SummaryMetadata("ampdoctor/diagnosis/text_summary").plugin_data
    assert plugin.plugin_name == "text"


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AmpDoctorError, match="cannot write to"):
        TensorBoardSink(tmp_path / "file" / "logs")


def test_a_missing_library_is_told_with_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(AmpDoctorError, match="tensorboard") as raised:
        TensorBoardSink(tmp_path)
    assert raised.value.hint == "pip install tensorboard"
