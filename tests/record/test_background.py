"""Writing in the background: nothing waits for a slow disk, nothing is lost but what the trace says is."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.engine import diagnose
from ampdoctor.record import background
from ampdoctor.record.background import BackgroundWriter, Step
from ampdoctor.trace.run import open_run
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.stream import read_stream
from ampdoctor.trace.writer import TraceWriter, table_path
from tests.record.training import Training
from tests.unit.trace.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ampdoctor.trace.schema import CallRow, StepRow
    from tests.record.recording import Recording

STEPS = 12


class SlowDisk:
    """A disk that takes nothing while it hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        self.asked = threading.Event()
        flush = TraceWriter.flush

        def slowly(writer: TraceWriter) -> None:
            self.asked.set()
            assert self._open.wait(60)
            flush(writer)

        monkeypatch.setattr(TraceWriter, "flush", slowly)
        monkeypatch.setattr(background, "SOON", 0.0)

    def recovers(self) -> None:
        self._open.set()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk(monkeypatch)
    yield disk
    disk.recovers()


def test_a_training_does_not_wait_for_a_disk_that_hangs(
    recording: Recording, slow_disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "ROOM", 20_000)
    alone = Training().run(STEPS)
    recorder = recording.start(every=1, prove=False)
    with recorder:
        outcome = Training().run(STEPS)  # ends, although nothing was written yet
        assert slow_disk.asked.wait(60)
        slow_disk.recovers()
    assert outcome.differences(alone) == []
    run = recording.run
    assert [s.step for s in run.steps] == list(range(STEPS))
    held = {row.step for row in run.tensors()}
    dropped = {s.step for s in run.steps if s.dropped}
    assert dropped
    assert held
    assert held | dropped == set(range(STEPS))
    assert not held & dropped
    assert {s.step for s in run.steps if s.examined} == held
    assert {c.step for c in run.calls} == set(range(STEPS))
    assert run.modules
    (gap,) = (g for g in diagnose(run).examined.gaps if "disk" in g)
    assert f"rows of {len(dropped)} steps" in gap


def test_nothing_is_given_up_while_the_disk_keeps_up(recording: Recording) -> None:
    with recording.start(every=1, prove=False):
        Training().run(STEPS)
    assert {row.step for row in recording.run.tensors()} == set(range(STEPS))
    assert all(s.dropped is None for s in recording.run.steps)


def test_what_was_written_is_on_disk_soon_without_another_step(recording: Recording) -> None:
    with recording.start(every=1, prove=False):
        Training().run(2)
        end = time.monotonic() + 60
        while time.monotonic() < end and not _steps(recording.folder):
            time.sleep(0.01)
        assert _steps(recording.folder)[0] == 0


def _steps(folder: Path) -> list[int]:
    return [s.step for s in open_run(folder).steps] if list(folder.glob("steps-*")) else []


def test_rows_beyond_the_room_are_those_of_vitals_only(
    tmp_path: Path, slow_disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "ROWS", 10)
    writer = BackgroundWriter(TraceWriter(tmp_path))
    steps: list[StepRow] = [replace(row, dropped=0) for row in rows_of("steps", 30)]
    calls: list[CallRow] = rows_of("calls", 30)
    for step, call in zip(steps, calls, strict=True):
        writer.put(_vitals(step, call), soon=True)
    slow_disk.recovers()
    writer.close()
    assert len(_table(tmp_path, "steps")) == 30
    kept = len(_table(tmp_path, "calls"))
    assert 5 <= kept <= 12
    assert sum(row["dropped"] for row in _table(tmp_path, "steps")) == 30 - kept


def _vitals(step: StepRow, call: CallRow) -> Step:
    return Step([("steps", step), ("calls", call)], [])


def _table(folder: Path, name: str) -> list[Any]:
    found: list[Any] = read_stream(table_path(folder, name), TABLES[name]).table.to_pylist()
    return found


def test_an_error_of_the_disk_is_raised_to_who_writes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: TraceWriter) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(TraceWriter, "flush", full)
    writer = BackgroundWriter(TraceWriter(tmp_path))
    (step,) = rows_of("steps", 1)
    writer.put(Step([("steps", step)], []), soon=True)
    with pytest.raises(OSError, match="No space left"):
        writer.close()
    with pytest.raises(OSError, match="No space left"):
        writer.put(Step([("steps", step)], []), soon=True)
    writer.abandon()


def test_no_thread_is_left_behind(recording: Recording) -> None:
    before = set(threading.enumerate())
    with recording.start(every=1):
        Training().run(3)
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) == before


def test_where_no_thread_can_be_started_any_more_it_writes_by_itself(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12 and later start none while the interpreter ends, when a run without a step opens its folder."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with recording.start(every=1, prove=False):
        Training().run(3)
    assert [s.step for s in recording.run.steps] == [0, 1, 2]
    assert recording.run.info.status == "complete"


def test_a_disk_that_hangs_for_good_is_given_up_at_the_end(
    recording: Recording, slow_disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_HUNG", 0.2)
    monkeypatch.setattr(background, "_PATIENCE", 0.1)
    with recording.start(every=1, prove=False, strict=False):
        Training().run(3)
        assert slow_disk.asked.wait(60)
    assert "nothing could be written" in str(recording.run.info.degraded)
