"""Ranks that were started one by one meet in one folder, and no other launch does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ampdoctor.errors import OutputExistsError
from ampdoctor.session import RUNS, discard, run_place
from ampdoctor.trace import meeting
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.meeting import Launch, launch, take_seat

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = Launch(".ranks-a", "20260101-000000", True), Launch(".ranks-a", "20260101-000000", False)
LATER = Launch(".ranks-b", "20260101-000000", True)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def _launched(monkeypatch: pytest.MonkeyPatch, **told: str) -> Launch | None:
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    return launch()


def test_who_is_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch() is None
    assert _launched(monkeypatch, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1") is None
    first = _launched(monkeypatch, WORLD_SIZE="2")
    assert first is not None
    assert first.leads
    second = _launched(monkeypatch, RANK="1", LOCAL_RANK="1")
    assert second is not None
    assert not second.leads
    assert _launched(monkeypatch, LOCAL_RANK="") is None


def test_ranks_of_a_launch_agree_on_its_trainings_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for rank in ("0", "1"):
        monkeypatch.setattr(meeting, "_numbers", iter((1, 2)))  # each is a process of its own
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
        names.append([one.marker for _ in range(2) if (one := _launched(monkeypatch, **told)) is not None])
    assert names[0] == names[1]
    assert len(set(names[0])) == 2


def test_a_folder_is_taken_once_and_joined(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    take_seat(folder, FIRST).leave()
    take_seat(folder, SECOND).leave()
    with pytest.raises(OutputExistsError):
        take_seat(folder, LATER)


def test_a_run_of_another_launch_is_replaced_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    take_seat(folder, LATER).leave()
    write_info(folder, RunInfo())
    take_seat(folder, FIRST, force=True).leave()
    write_info(folder, RunInfo(status="running"))
    take_seat(folder, SECOND, force=True).leave()
    assert (folder / "run.json").is_file()
    assert not (folder / LATER.marker).exists()


def test_the_one_that_leads_leaves_last(tmp_path: Path) -> None:
    first, second = take_seat(tmp_path / "run", FIRST), take_seat(tmp_path / "run", SECOND)
    leaving = threading.Thread(target=first.leave_in_order, args=(60.0,))
    leaving.start()
    assert leaving.is_alive()
    second.leave_in_order(60.0)
    leaving.join(60.0)
    assert not leaving.is_alive()


def test_nobody_is_waited_for_without_end(tmp_path: Path) -> None:
    first = take_seat(tmp_path / "run", FIRST)
    take_seat(tmp_path / "run", SECOND)
    first.leave_in_order(0.0)
    first.leave()  # again, which does nothing


def test_a_fresh_folder_for_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    places = []
    for launched in (FIRST, SECOND, LATER):
        monkeypatch.setattr("ampdoctor.session.launch", lambda launched=launched: launched)
        places.append(run_place("train")[0])
    assert places == [RUNS / "train-20260101-000000"] * 2 + [RUNS / "train-20260101-000000-2"]
    for folder in places[1:]:
        discard(folder)
    assert not RUNS.exists()
