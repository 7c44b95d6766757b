"""What goes to sinks, and that no sink can hurt the training or another sink."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ampdoctor.config import Config
from ampdoctor.finding import Severity
from ampdoctor.live import LiveFindings, Pace, Watcher
from ampdoctor.sinks import pump
from ampdoctor.sinks.metrics import Summaries
from ampdoctor.sinks.pump import Pump
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.info import update_info
from tests.recorded import write_run
from tests.unit.report.diagnoses import COLLAPSED, HEALTHY, LOST, NOTE, UNDERFLOW
from tests.unit.sinks.recording import Kept, write

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.sinks.base import Sink, StepMetrics

STEPS = [0, 1, 2]


class _Failures(list[str]):
    def __call__(self, what: str, error: Exception) -> None:
        self.append(f"{what}: {error}")


@pytest.fixture
def failures() -> _Failures:
    """What was said to be missing."""
    return _Failures()


def _steps(sink: Kept) -> list[int]:
    return [m.step for m in sink.steps]


def test_a_finished_run_is_told_once(tmp_path: Path, failures: _Failures) -> None:
    kept = Kept()
    Pump(write_run(tmp_path / "run"), [kept], failures).finish(COLLAPSED)
    assert _steps(kept) == STEPS
    assert [m.values["ampdoctor/loss"] for m in kept.steps] == [3.0, 2.0, 1.0]
    assert kept.findings == [UNDERFLOW]
    assert kept.diagnoses == [COLLAPSED]
    assert kept.closed == 1
    assert failures == []


def test_a_finding_that_was_told_live_is_not_told_again(tmp_path: Path, failures: _Failures) -> None:
    kept = Kept()
    sent = Pump(write_run(tmp_path / "run"), [kept], failures)
    sent.finding(UNDERFLOW)
    sent.finding(replace(UNDERFLOW, location=replace(UNDERFLOW.location, sites=("elsewhere (update)",))))
    sent.finding(LOST)
    worse = replace(LOST, severity=Severity.ERROR)
    sent.finish(replace(COLLAPSED, findings=(UNDERFLOW, worse, NOTE)))
    assert kept.findings == [UNDERFLOW, LOST, worse]


def test_looking_passes_steps_on_and_flushes(tmp_path: Path, failures: _Failures) -> None:
    builder = RunBuilder().step().step().step()
    folder = write(tmp_path / "run", builder, status="running", flushes=[1])
    kept = Kept()
    sent = Pump(folder, [kept], failures)
    sent.look()
    sent.look()
    assert (_steps(kept), kept.flushed) == ([0, 1], 1)
    sent.finish(HEALTHY)
    assert _steps(kept) == STEPS


def test_without_a_diagnosis_the_numbers_come_all_the_same(tmp_path: Path, failures: _Failures) -> None:
    kept = Kept()
    Pump(write_run(tmp_path / "run"), [kept], failures).finish(None)
    assert (_steps(kept), kept.diagnoses, kept.closed) == (STEPS, [], 1)


@pytest.mark.parametrize("method", ["metrics", "finding", "diagnosis", "flush", "close"])
def test_a_sink_that_fails_is_told_of_and_stops_no_other(
    tmp_path: Path, failures: _Failures, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, kept = Kept(), Kept()

    def fail(*_: object) -> None:
        raise ConnectionError("tracker is gone")

    monkeypatch.setattr(broken, method, fail)
    Pump(write_run(tmp_path / "run"), [broken, kept], failures).finish(COLLAPSED)
    assert failures == ["nothing more goes to Kept: tracker is gone"]
    assert (_steps(kept), kept.findings, kept.closed) == (STEPS, [UNDERFLOW], 1)


def test_a_folder_that_is_not_there_yet_is_no_failure(tmp_path: Path, failures: _Failures) -> None:
    kept = Kept()
    sent = Pump(tmp_path / "run", [kept], failures)
    sent.look()
    assert failures == []
    write_run(tmp_path / "run")
    sent.look()
    assert _steps(kept) == STEPS


def test_a_folder_that_never_comes_is_told(tmp_path: Path, failures: _Failures) -> None:
    Pump(tmp_path / "run", [Kept()], failures).finish(None)
    assert len(failures) == 1


def test_a_defect_of_ours_ends_the_metrics_and_is_told_once(
    tmp_path: Path, failures: _Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("defect")

    monkeypatch.setattr(Summaries, "of", fail)
    kept = Kept()
    sent = Pump(write_run(tmp_path / "run"), [kept], failures)
    sent.look()
    sent.finish(COLLAPSED)
    assert failures == ["no further metrics for your tracker: defect"]
    assert kept.findings == [UNDERFLOW]


def test_a_tracker_that_hangs_does_not_hold_the_training_up(
    tmp_path: Path, failures: _Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "PATIENCE_S", 0.05)
    entered, released = threading.Event(), threading.Event()

    class Hanging(Kept):
        def metrics(self, metrics: StepMetrics) -> None:
            entered.set()
            released.wait(timeout=10.0)

    sent = Pump(write_run(tmp_path / "run"), [Hanging()], failures)
    thread = threading.Thread(target=sent.look, daemon=True)
    thread.start()
    assert entered.wait(timeout=10.0)
    sent.finish(HEALTHY)
    released.set()
    thread.join(timeout=10.0)
    assert failures == ["the last metrics and findings did not reach your tracker: it does not answer"]


def test_the_thread_that_watches_the_run_feeds_the_sinks(tmp_path: Path, failures: _Failures) -> None:
    folder = write(tmp_path / "run", RunBuilder().step(loss=1.0).step(loss=1.0), status="running", flushes=[0])
    seen = threading.Event()

    class Seen(Kept):
        def flush(self) -> None:
            seen.set()

    kept = Seen()
    sinks: list[Sink] = [kept]
    sent = Pump(folder, sinks, failures)
    live = LiveFindings(Watcher(folder, Config()), sent.finding, Pace(interval_s=0.001, rest=0.0), sent.look)
    live.start()
    assert seen.wait(timeout=10.0)
    live.stop()
    assert _steps(kept) == [0]
    update_info(folder, status="complete")
    sent.finish(None)
    assert _steps(kept) == [0, 1]


def test_a_look_that_fails_ends_the_looking_and_not_the_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    told = threading.Event()

    def look() -> None:
        looks.append(1)
        raise RuntimeError("defect")

    watcher = Watcher(tmp_path, Config())
    monkeypatch.setattr(watcher, "poll", lambda: [UNDERFLOW] if looks else [])
    live = LiveFindings(watcher, lambda _: told.set(), Pace(interval_s=0.001, rest=0.0), look)
    live.start()
    assert told.wait(timeout=10.0)
    live.stop()
    assert looks == [1]
