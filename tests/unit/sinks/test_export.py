"""`ampdoctor export`: a recorded run to trackers by one command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.cli import export as command
from ampdoctor.cli.app import invoke
from ampdoctor.sinks import known_sinks
from tests.recorded import write_run
from tests.unit.sinks.recording import Kept

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Kept]:
    """The sinks that were made, by where they write and what they call the run; all trackers are stand-ins."""
    made: dict[tuple[str, str], Kept] = {}

    def find(_tracker: str) -> Callable[[str, str], Kept]:
        return lambda where, name: made.setdefault((where, name), Kept())

    monkeypatch.setattr(command, "find_sink", find)
    return made


def test_all_trackers_are_found() -> None:
    assert set(known_sinks()) == {"mlflow", "tensorboard", "wandb"}


def test_a_run_goes_to_each_tracker(
    tmp_path: Path, kept: dict[tuple[str, str], Kept], capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run-7")
    assert invoke(["export", str(run), "--to", "wandb", "--to", "tensorboard=logs/a=b"]) == 0
    assert set(kept) == {("", "run-7"), ("logs/a=b", "run-7")}
    for sink in kept.values():
        assert [m.step for m in sink.steps] == [0, 1, 2]
        assert len(sink.diagnoses) == sink.closed == 1
    assert "3 steps" in capsys.readouterr().err


def test_a_tracker_that_fails_makes_the_command_fail(
    tmp_path: Path,
    kept: dict[tuple[str, str], Kept],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(Kept, "metrics", fail)
    assert invoke(["export", str(write_run(tmp_path / "run")), "--to", "wandb"]) == 2
    assert "no route" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "said"), [("nope", "unknown tracker 'nope'"), ("tensorboard", "--to tensorboard=LOGDIR")]
)
def test_bad_targets_are_told_in_one_line(
    tmp_path: Path, target: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["export", str(write_run(tmp_path / "run")), "--to", target]) == 2
    assert said in capsys.readouterr().err


def test_tensorboard_gets_an_event_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert invoke(["export", str(write_run(tmp_path / "run")), "--to", f"tensorboard={tmp_path / 'logs'}"]) == 0
    assert len(list((tmp_path / "logs").glob("events.out.*"))) == 1
