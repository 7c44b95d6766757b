"""Findings while a run is being recorded: each fault once, whatever state the folder is in."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ampdoctor import live
from ampdoctor.config import Config
from ampdoctor.errors import TraceCorruptError
from ampdoctor.finding import Finding, Location, Severity
from ampdoctor.live import LiveFindings, Pace, Watcher
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.writer import TraceWriter
from tests.recorded import step_rows, write_run
from tests.unit.report.diagnoses import LOST, UNDERFLOW

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Returns a function that says what the engine finds from now on."""

    def now(*faults: Finding) -> None:
        found = SimpleNamespace(faults=faults)
        monkeypatch.setattr(live, "diagnose", lambda run, config: found)

    return now


class _GrowingRun:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        write_info(folder, RunInfo())
        self._writer = TraceWriter(folder)

    def grow(self) -> None:
        self._writer.append("steps", step_rows([1.0]))
        self._writer.flush()


@pytest.fixture
def run(tmp_path: Path) -> _GrowingRun:
    """A run that is being recorded into `tmp_path / "run"`."""
    return _GrowingRun(tmp_path / "run")


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    """A watcher of that run."""
    return Watcher(tmp_path / "run", Config())


def test_a_fault_is_told_once(run: _GrowingRun, watcher: Watcher, find: Callable[..., None]) -> None:
    find(UNDERFLOW)
    run.grow()
    assert watcher.poll() == [UNDERFLOW]
    run.grow()
    assert watcher.poll() == []
    find(UNDERFLOW, LOST)
    run.grow()
    assert watcher.poll() == [LOST]


def test_a_fault_whose_sites_shift_is_still_the_same(
    run: _GrowingRun, watcher: Watcher, find: Callable[..., None]
) -> None:
    find(UNDERFLOW)
    run.grow()
    watcher.poll()
    find(replace(UNDERFLOW, location=replace(UNDERFLOW.location, sites=("elsewhere (update)",))))
    run.grow()
    assert watcher.poll() == []


def test_another_line_of_code_is_another_fault(run: _GrowingRun, watcher: Watcher, find: Callable[..., None]) -> None:
    second = replace(LOST, location=Location(source="train.py:9"))
    find(LOST, second)
    run.grow()
    assert watcher.poll() == [LOST, second]


def test_a_fault_that_gets_worse_is_told_again(run: _GrowingRun, watcher: Watcher, find: Callable[..., None]) -> None:
    worse = replace(LOST, severity=Severity.ERROR)
    for found, told in ((LOST, [LOST]), (worse, [worse]), (LOST, [])):
        find(found)
        run.grow()
        assert watcher.poll() == told


def test_nothing_is_examined_where_nothing_was_written(
    run: _GrowingRun, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def examine(*arguments: object) -> SimpleNamespace:
        calls.append(arguments)
        return SimpleNamespace(faults=())

    monkeypatch.setattr(live, "diagnose", examine)
    run.grow()
    for _ in range(3):
        watcher.poll()
    assert len(calls) == 1


@pytest.mark.parametrize("kept", [0, 1, 3, 8, 100, 400])
def test_a_half_written_folder_is_no_fault(tmp_path: Path, watcher: Watcher, kept: int) -> None:
    stream = write_run(tmp_path / "run") / "steps-0.arrows"
    stream.write_bytes(stream.read_bytes()[:kept])
    assert watcher.poll() == []


def test_missing_and_empty_folders_are_no_faults(tmp_path: Path, watcher: Watcher) -> None:
    assert watcher.poll() == []
    (tmp_path / "run").mkdir()
    assert watcher.poll() == []
    (tmp_path / "run" / "steps-0.arrows").write_bytes(b"")
    assert watcher.poll() == []


def test_a_folder_that_could_not_be_read_is_tried_again(
    run: _GrowingRun, watcher: Watcher, find: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise TraceCorruptError("not yet")

    monkeypatch.setattr(live, "diagnose", unreadable)
    run.grow()
    assert watcher.poll() == []
    find(UNDERFLOW)
    assert watcher.poll() == [UNDERFLOW]


class _Scripted:
    """A watcher whose polls return what they are told to, or raise it."""

    def __init__(self, *results: list[Finding] | Exception) -> None:
        self._results = list(results)
        self.done = threading.Event()

    def poll(self) -> list[Finding]:
        if not self._results:
            self.done.set()
            return []
        result = self._results.pop(0)
        if isinstance(result, Exception):
            self.done.set()
            raise result
        return result


def _told_by(watcher: _Scripted) -> list[Finding]:
    told: list[Finding] = []
    findings = LiveFindings(watcher, told.append, Pace(interval_s=0.001, rest=0.0))  # type: ignore[arg-type]
    findings.start()
    assert watcher.done.wait(timeout=10.0)
    findings.stop()
    return told


def test_every_new_finding_is_passed_on() -> None:
    assert _told_by(_Scripted([UNDERFLOW], [], [LOST])) == [UNDERFLOW, LOST]


def test_a_defect_of_ours_ends_the_watching_and_nothing_else() -> None:
    assert _told_by(_Scripted([UNDERFLOW], RuntimeError("defect"))) == [UNDERFLOW]


def test_watching_can_be_stopped_before_it_began() -> None:
    LiveFindings(_Scripted(), print, Pace(interval_s=1.0, rest=1.0)).stop()  # type: ignore[arg-type]
