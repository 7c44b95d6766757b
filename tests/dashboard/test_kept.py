"""What is kept of a run, and for how long."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ampdoctor.errors import AmpDoctorError, TraceCorruptError
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.info import update_info
from ampdoctor.trace.writer import table_path
from ampdoctor_dashboard.data import opened as opening
from ampdoctor_dashboard.data import whatif
from ampdoctor_dashboard.data.judge import Judge
from ampdoctor_dashboard.data.kept import Kept
from ampdoctor_dashboard.data.library import Library
from ampdoctor_dashboard.data.memory import costs
from ampdoctor_dashboard.data.opened import OpenedRun
from ampdoctor_dashboard.data.runs import glances
from ampdoctor_dashboard.data.step_run import run_of_step
from tests.dashboard.built import opened
from tests.recorded import write_run
from tests.unit.trace.rows import write_batches

if TYPE_CHECKING:
    from pathlib import Path


def _run(folder: Path) -> OpenedRun:
    builder = RunBuilder().module("head").step()
    builder.tensor("head", "weight_grad", slot="weight", exponents={-30: 25, -10: 75})
    return opened(folder, builder)


def test_each_thing_is_made_once_and_the_oldest_goes() -> None:
    made: list[int] = []
    kept: Kept[int] = Kept(2)

    def make(n: int) -> int:
        made.append(n)
        return n

    for n in (1, 1, 2, 3, 3, 1):
        assert kept.get(n, partial(make, n)) == n
        assert len(kept) <= 2
    assert made == [1, 2, 3, 1]


def test_a_run_that_is_no_longer_open_is_forgotten(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    run_of_step(run, 0)
    costs(run)
    whatif.answers(run, whatif.Asked(format="fp16"))
    gone = weakref.ref(run)
    del run
    gc.collect()
    assert gone() is None


def test_what_is_kept_goes_with_the_next_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "AT_MOST_EVERY_S", 0.0)
    run = _run(tmp_path / "run")
    before = run_of_step(run, 0)
    assert run_of_step(run, 0) is before
    update_info(run.folder, status="crashed")
    run.refresh()
    assert run_of_step(run, 0) is not before


def test_tensors_stay_as_they_are_while_the_run_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "AT_MOST_EVERY_S", 0.0)
    folder = write_run(tmp_path / "run")
    write_batches(folder, "tensors", 3)
    path = table_path(folder, "tensors")
    write_batches(tmp_path, "tensors", 3, 4)
    run = OpenedRun("run", folder)
    before = run.tensors
    path.write_bytes(table_path(tmp_path, "tensors").read_bytes())
    run.refresh()
    after = run.tensors
    assert (len(before), len(before.step), len(before.site), len(before.column("zeros"))) == (3, 3, 3, 3)
    assert len(after) == 7
    assert after.step[:3].tolist() == before.step.tolist()
    role = after.sites[0].role
    later = after.rows_of_role(role).tolist()
    assert before.rows_of_role(role).tolist() == [row for row in later if row < 3]


def test_a_look_that_failed_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "AT_MOST_EVERY_S", 0.0)
    folder = write_run(tmp_path / "run")
    run = OpenedRun("run", folder)
    sound = (folder / "run.json").read_text()
    (folder / "run.json").write_text("{")
    for _ in range(2):
        with pytest.raises(AmpDoctorError):
            run.refresh()
    (folder / "run.json").write_text(sound)
    assert run.refresh() >= 0


def test_recorded_anew_without_the_rank_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "AT_MOST_EVERY_S", 0.0)
    folder = write_run(tmp_path / "run")
    table_path(folder, "steps", 1).write_bytes(table_path(folder, "steps", 0).read_bytes())
    run = OpenedRun("run", folder, 1)
    assert run.rank == 1
    table_path(folder, "steps", 1).unlink()
    update_info(folder, started=1.0)
    run.refresh()
    assert (run.rank, run.ranks, len(run.steps)) == (0, (0,), 3)


def test_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    assert run.tensor_row(0)["module"] == "head"
    with pytest.raises(TraceCorruptError):
        run.tensor_row(1)
    with pytest.raises(TraceCorruptError):
        OpenedRun("none", write_run(tmp_path / "none")).tensor_row(0)


def test_damage_in_the_middle_is_told_and_a_cut_end_once_the_run_is_over(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    sound = table_path(folder, "steps").read_bytes()
    table_path(folder, "steps").write_bytes(sound[:-20])
    run = OpenedRun("run", folder)
    run.table("steps")
    assert "ends in the middle" in run.problems["steps"]
    table_path(folder, "steps").write_bytes(sound[:-8] + b"junk that is no batch")
    run = OpenedRun("run", folder)
    assert run.table("steps").num_rows == 3
    assert "damaged" in run.problems["steps"]
    table_path(folder, "steps").write_bytes(sound)
    run = OpenedRun("run", folder)
    run.table("steps")
    assert run.problems == {}


def test_one_rank_is_opened_once_however_it_is_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    library = Library(tmp_path)
    assert library.open("one") is library.open("one", 0) is library.open("one", 7)


def test_a_glance_at_all_runs_closes_none(tmp_path: Path) -> None:
    for n in range(8):
        write_run(tmp_path / f"run{n}")
    library, judge = Library(tmp_path), Judge()
    run = library.open("run0")
    assert [g.ranks for g in glances(library, judge)] == [1] * 8
    assert library.open("run0") is run
    judge.close()


def test_a_diagnosis_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, run = Judge(), OpenedRun("run", write_run(tmp_path / "run"))
    asked: list[object] = []
    monkeypatch.setattr(judge._worker, "submit", lambda *args: asked.append(args))
    assert judge.ask(run) is None
    assert judge.ask(run) is None
    assert len(asked) == 1


def test_a_closed_judge_takes_nothing_on(tmp_path: Path) -> None:
    judge, run = Judge(), OpenedRun("run", write_run(tmp_path / "run"))
    judge.close()
    assert judge.ask(run, 60.0) is None
