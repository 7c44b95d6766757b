"""Recording from inside a script: where it goes, and that its report can never hurt the training."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ampdoctor
from ampdoctor import session
from ampdoctor.errors import OutputExistsError, OutputNotWritableError
from ampdoctor.report.terminal import console
from ampdoctor.session import conclude, new_run_folder
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.writer import TraceWriter
from tests.recorded import write_run


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_runs_that_begin_in_the_same_second_get_folders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ampdoctor.session.time.strftime", lambda _: "20260101-120000")
    folders = [new_run_folder("train") for _ in range(3)]
    assert [str(f) for f in folders] == [
        "ampdoctor-runs/train-20260101-120000",
        "ampdoctor-runs/train-20260101-120000-2",
        "ampdoctor-runs/train-20260101-120000-3",
    ]
    assert all(f.is_dir() for f in folders)


def test_a_folder_that_was_asked_for_is_taken_if_it_is_free() -> None:
    assert new_run_folder("train", "here") == Path("here")
    write_run(Path("here"))
    with pytest.raises(OutputExistsError):
        new_run_folder("train", "here")
    assert new_run_folder("train", "here", force=True) == Path("here")
    assert list(Path("here").iterdir()) == []


def test_a_working_directory_that_cannot_be_written_is_told_in_one_line() -> None:
    Path("ampdoctor-runs").write_text("a file in the way", encoding="utf-8")
    with pytest.raises(OutputNotWritableError, match="cannot write to"):
        new_run_folder("train")


def test_the_end_of_a_run_names_what_to_type_next(capsys: pytest.CaptureFixture[str]) -> None:
    conclude(write_run(Path("here")), console())
    shown = capsys.readouterr().out
    assert "ampdoctor diagnose here" in shown
    assert "Precision" in shown


def test_a_run_without_a_step_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    conclude(write_run(Path("here"), losses=[]), console())
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 1
    assert "no optimizer step was completed" in shown


def test_a_loop_that_changes_weights_by_itself_is_told_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("here"), losses=[])
    writer = TraceWriter(folder, 0)
    rows = RunBuilder().tensor("body", "activation", slot="out", exponents={0: 1}).build().tensors("activation")
    writer.append("tensors", list(rows))
    writer.close()
    conclude(folder, console())
    assert "recorder.step()" in capsys.readouterr().out


class _FakeRecorder:
    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = settings


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder that only keeps what it was given."""
    module = ModuleType("ampdoctor.record.recorder")
    module.Recorder = _FakeRecorder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ampdoctor.record.recorder", module)
    monkeypatch.setattr(sys, "argv", ["scripts/train.py"])


def _watch(**settings: Any) -> _FakeRecorder:
    recording: Any = ampdoctor.watch(**settings)
    assert isinstance(recording, _FakeRecorder)
    return recording


@pytest.mark.usefixtures("recorder")
def test_watch_makes_a_folder_called_after_the_script() -> None:
    recording = _watch()
    assert recording.folder.parent == Path("ampdoctor-runs")
    assert recording.folder.name.startswith("train-")


@pytest.mark.usefixtures("recorder")
def test_watch_passes_its_settings_on() -> None:
    recording = _watch(model="m", optimizer="o", scaler="s", every=5, budget=0.1, out="here")
    given = ("model", "optimizer", "scaler", "every", "budget")
    assert [recording.settings[name] for name in given] == ["m", "o", "s", 5, 0.1]
    assert recording.folder == Path("here")


@pytest.mark.usefixtures("recorder")
def test_watch_says_nothing_where_no_report_is_wanted() -> None:
    settings = _watch(report=False).settings
    assert settings["on_open"] is None
    assert settings["on_close"] is None


@pytest.mark.usefixtures("recorder")
def test_the_diagnosis_goes_to_stderr_when_the_recording_closes(capsys: pytest.CaptureFixture[str]) -> None:
    recording = _watch(out="here")
    recording.settings["on_open"](recording.folder)
    write_run(Path("there"))
    for part in Path("there").iterdir():
        part.rename(Path("here") / part.name)
    recording.settings["on_close"](recording.folder)
    captured = capsys.readouterr()
    assert "ampdoctor diagnose here" in captured.err
    assert captured.out == ""


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("broken", ["load_config", "open_run", "diagnose", "Watcher"])
def test_no_defect_of_the_report_reaches_the_training(
    broken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("defect")

    recording = _watch(out="here")
    monkeypatch.setattr(session, broken, fail)
    recording.settings["on_open"](recording.folder)
    recording.settings["on_close"](recording.folder)
    assert "ampdoctor: no " in capsys.readouterr().err


@pytest.mark.usefixtures("recorder")
def test_a_closed_stderr_does_not_reach_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = _watch(out="here")
    monkeypatch.setattr(sys, "stderr", None)
    recording.settings["on_open"](recording.folder)
    recording.settings["on_close"](recording.folder)
