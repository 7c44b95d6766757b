"""A run that goes on while it is looked at."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from ampdoctor.trace.info import RunInfo, update_info, write_info
from ampdoctor.trace.writer import TraceWriter, prepare_folder
from ampdoctor_dashboard.data.judge import Judge
from ampdoctor_dashboard.data.opened import AT_MOST_EVERY_S, OpenedRun
from tests.dashboard.conftest import served, wait_until_settled
from tests.recorded import step_rows, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

SOON_MS = 10_000
"""News must be there within two seconds of their flush; a busy machine gets more."""


class Training:
    """A training that this process pretends to be."""

    def __init__(self, folder: Path, steps: int = 3) -> None:
        self.folder = folder
        prepare_folder(folder)
        info = RunInfo(status="running", started=time.time(), pid=os.getpid(), host=socket.gethostname())
        write_info(folder, info)
        self._writer = TraceWriter(folder)
        self._steps = 0
        self.go_on(steps)

    def go_on(self, steps: int) -> None:
        """Take steps, and flush them."""
        rows = step_rows([1.0] * (self._steps + steps))[self._steps :]
        now = time.time()
        self._writer.append("steps", [replace(row, time=now + row.step / 100.0) for row in rows])
        self._writer.flush()
        self._steps += steps

    def end(self, status: str = "complete") -> None:
        """End as a recorder does."""
        self._writer.close()
        update_info(self.folder, status=status, ended=time.time(), exit_code=0)

    def abandon(self) -> None:
        """Close the files of a training that was left alone."""
        self._writer.abandon()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    """A training that has taken three steps."""
    training = Training(tmp_path / "live")
    yield training
    training.abandon()


def _last_step(page: Page) -> int:
    found: int = page.evaluate(
        "() => { const g = document.querySelector('#timeline-figure .js-plotly-plot');"
        " const line = g && g._fullData && g._fullData.find((d) => d.x && d.x.length > 1);"
        " return line ? Math.max(...line.x) : -1 }"
    )
    return found


_RANGE = "document.querySelector('#timeline-figure .js-plotly-plot').layout.xaxis.range"


def _range(page: Page) -> list[float]:
    found: list[float] = page.evaluate(_RANGE)
    return found


def _zoom(page: Page) -> None:
    """Draw a frame around the middle of the first strip, as a person does."""
    box = page.locator("#timeline-figure .draglayer .nsewdrag").first.bounding_box()
    assert box
    y = box["y"] + box["height"] / 2.0
    page.mouse.move(box["x"] + 0.4 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], y, steps=5)
    page.mouse.up()


def test_new_steps_appear_without_losing_the_zoom(page: Page, training: Training) -> None:
    with served(training.folder) as address:
        page.goto(f"{address}/timeline")
        wait_until_settled(page)
        expect(page.locator("#live")).to_contain_text("live")
        page.wait_for_function("() => document.querySelector('#timeline-figure .js-plotly-plot')")
        assert _last_step(page) == 2
        whole = _range(page)
        _zoom(page)
        page.wait_for_function(f"() => {_RANGE}[0] > {whole[0]}")
        before = _range(page)
        training.go_on(4)
        page.wait_for_function(
            "() => { const g = document.querySelector('#timeline-figure .js-plotly-plot');"
            " return g._fullData.some((d) => d.x && d.x.length === 7) }",
            timeout=SOON_MS,
        )
        assert _range(page) == before


def test_its_end_is_told(page: Page, training: Training) -> None:
    with served(training.folder) as address:
        page.goto(f"{address}/timeline")
        expect(page.locator("#live")).to_contain_text("live")
        training.end()
        expect(page.locator("#live")).to_contain_text("ended", timeout=SOON_MS)


def test_a_run_without_news_has_stalled(training: Training) -> None:
    opened = OpenedRun(".", training.folder)
    assert opened.stalled_for_s is None
    long_ago = time.time() - 3600.0
    for path in training.folder.iterdir():
        os.utime(path, (long_ago, long_ago))
    later = OpenedRun(".", training.folder)
    assert later.stalled_for_s == pytest.approx(3600.0, abs=60.0)


def test_a_slow_run_has_not_stalled_while_its_steps_take_so_long(tmp_path: Path) -> None:
    training = Training(tmp_path / "slow")
    rows = [replace(row, step=row.step + 10, wall_ms=600_000.0) for row in step_rows([1.0] * 9)]
    training._writer.append("steps", rows)
    training._writer.flush()
    for path in training.folder.iterdir():
        os.utime(path, (time.time() - 3600.0,) * 2)
    assert OpenedRun(".", training.folder).stalled_for_s is None
    training.abandon()


def test_a_killed_run_is_not_live(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "killed")
    update_info(folder, status="running", pid=2**22 + 1, host=socket.gethostname(), exit_code=None)
    opened = OpenedRun(".", folder)
    assert not opened.is_live
    assert opened.stalled_for_s is None


def test_tables_grow_and_the_version_tells(training: Training) -> None:
    opened = OpenedRun(".", training.folder)
    assert len(opened.steps) == 3
    before = opened.version
    training.go_on(2)
    assert len(opened.steps) == 3
    time.sleep(1.1 * AT_MOST_EVERY_S)
    assert opened.refresh() > before
    assert opened.steps.step.tolist() == [0, 1, 2, 3, 4]


def test_a_diagnosis_goes_on_being_shown_while_the_next_is_made(training: Training) -> None:
    judge, opened = Judge(), OpenedRun(".", training.folder)
    first = judge.ask(opened, 60.0)
    assert first is not None
    assert first.current
    assert first.last_step == 2
    training.go_on(1)
    again = judge.ask(opened)
    assert again is not None
    assert (again.last_step, again.current) in {(2, False), (3, True)}
    assert again.diagnosis is not None


def test_a_run_that_can_not_be_judged_says_why(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "odd")
    (folder / "tensors-0.arrows").write_bytes(b"no stream at all")
    judged = Judge().ask(OpenedRun(".", folder), 60.0)
    assert judged is not None
    assert judged.diagnosis is None
    assert judged.problem is not None
    assert "tensors-0.arrows" in judged.problem


def test_a_table_that_can_not_be_read_leaves_the_others(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "odd")
    (folder / "tensors-0.arrows").write_bytes(b"no stream at all")
    opened = OpenedRun(".", folder)
    assert len(opened.tensors) == 0
    assert len(opened.steps) == 3
    assert "tensors" in opened.problems


def test_a_run_that_is_recorded_anew_is_another(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "again", [3.0, 2.0, 1.0])
    opened = OpenedRun(".", folder)
    assert len(opened.steps) == 3
    assert len(opened.tensors) == 0
    for path in folder.iterdir():
        path.unlink()
    write_run(folder, [9.0])
    update_info(folder, started=1.0)
    time.sleep(1.1 * AT_MOST_EVERY_S)
    opened.refresh()
    assert opened.steps.column("loss").tolist() == [9.0]


def test_tensors_may_be_asked_for_as_a_table_and_as_an_index(sample_runs: Path) -> None:
    opened = OpenedRun("bert_bf16", sample_runs / "bert_bf16")
    assert len(opened.tensors) == opened.table("tensors").num_rows > 0
    again = OpenedRun("bert_bf16", sample_runs / "bert_bf16")
    assert again.table("tensors").num_rows == len(again.tensors)
