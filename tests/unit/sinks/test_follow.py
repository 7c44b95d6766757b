"""A run folder read as it grows: each step once, in order, whole, wherever a poll falls."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.errors import AmpDoctorError
from ampdoctor.sinks.follow import Follower
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.info import RunInfo, update_info, write_info
from tests.unit.sinks.recording import as_written, write

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

STEPS = 12


def _builder() -> RunBuilder:
    builder = RunBuilder()
    for step in range(STEPS):
        builder.step(examined=step % 2 == 0)
        for layer in range(3 if step % 2 == 0 else 0):
            builder.tensor(f"layer{layer}", "weight_grad", exponents={-3: 5})
        if step % 4 == 0:
            builder.twin_step("fp32").twin("run", "layer0", "weight_grad").twin("run", "layer1", "weight_grad")
    return builder


def _numbers(run: Run | None) -> list[int]:
    return [row.step for row in run.steps] if run is not None else []


def _check_whole(run: Run) -> None:
    for step in _numbers(run):
        assert sum(r.step == step for r in run.tensors()) == (3 if step % 2 == 0 else 0)
        assert sum(r.step == step for r in run.twins) == (2 if step % 4 == 0 else 0)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_step_comes_once_in_order_and_whole_wherever_a_poll_falls(data: st.DataObject) -> None:
    flushes = sorted(data.draw(st.sets(st.integers(0, STEPS - 2), max_size=5), label="flushes"))
    told: list[int] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        folder.mkdir()
        (Path(place) / "parts").mkdir()
        write_info(folder, RunInfo())
        follower = Follower(folder)
        for path, added in as_written(Path(place) / "parts", folder, _builder(), flushes):
            cut = data.draw(st.integers(0, len(added)), label=path.name)
            for part in (added[:cut], added[cut:]):
                new = follower.new()
                if new is not None:
                    _check_whole(new)
                told += _numbers(new)
                with path.open("ab") as file:
                    file.write(part)
        assert told == list(range(len(told)))
        update_info(folder, status="complete")
        rest = follower.new()
        told += _numbers(rest)
        assert rest is not None
        _check_whole(rest)
        assert follower.new() is None
    assert told == list(range(STEPS))


def test_the_last_flush_is_held_back_until_the_run_is_over(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", _builder(), status="running", flushes=[3, 7])
    follower = Follower(folder)
    assert _numbers(follower.new()) == list(range(8))
    assert follower.new() is None
    update_info(folder, status="complete")
    assert _numbers(follower.new()) == list(range(8, STEPS))


def test_a_killed_run_is_told_to_its_end(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", _builder(), status="running")
    assert Follower(folder).new() is None
    assert _numbers(Follower(folder).new(everything=True)) == list(range(STEPS))


def test_long_runs_are_followed_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ampdoctor.trace.selection.ROOM", 1)
    monkeypatch.setattr("ampdoctor.trace.selection.LEAST_STEPS", 1)
    run = Follower(write(tmp_path / "run", _builder())).new()
    assert run is not None
    _check_whole(run)


def test_many_examined_steps_come_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ampdoctor.sinks.follow.AT_A_TIME", 2)
    follower = Follower(write(tmp_path / "run", _builder(), flushes=[4]))
    stretches = [_numbers(follower.new()) for _ in range(4)]
    assert stretches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], []]


def test_a_folder_with_nothing_in_it_has_nothing_new(tmp_path: Path) -> None:
    with pytest.raises(AmpDoctorError):
        Follower(tmp_path).new()
    write_info(tmp_path, RunInfo())
    assert Follower(tmp_path).new() is None
    (tmp_path / "steps-0.arrows").write_bytes(b"")
    assert Follower(tmp_path).new() is None
