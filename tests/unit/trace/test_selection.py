"""Of a long run the steps that matter are judged: its ends, each kind of trouble, and a sample of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.engine import diagnose
from ampdoctor.trace import selection
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.run import open_run
from ampdoctor.trace.schema import StepRow, TensorRow
from ampdoctor.trace.selection import LEAST_STEPS, ROOM, chosen_steps
from ampdoctor.trace.stream import Held
from ampdoctor.trace.writer import TraceWriter, prepare_folder

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 1000
PER_STEP = 2000


def _held(*nonfinite: int) -> dict[int, Held]:
    return {step: Held(PER_STEP, int(step in nonfinite)) for step in range(STEPS)}


def test_a_short_run_is_judged_whole() -> None:
    assert chosen_steps({0: Held(ROOM, 0)}, []) is None
    assert chosen_steps({}, []) is None


def test_few_large_steps_are_judged_whole() -> None:
    assert chosen_steps({step: Held(ROOM, 0) for step in range(LEAST_STEPS)}, []) is None


def test_a_sample_keeps_the_ends_and_the_room() -> None:
    chosen = chosen_steps(_held(), [])
    assert chosen is not None
    assert {0, 1, 2, STEPS - 3, STEPS - 2, STEPS - 1} <= chosen
    assert len(chosen) * PER_STEP <= ROOM + 2 * PER_STEP
    assert max(b - a for a, b in zip(sorted(chosen), sorted(chosen)[1:], strict=False)) <= STEPS / 10


def test_trouble_is_kept_as_it_began_and_as_it_last_was() -> None:
    trouble = [333, 334, 335, 336, 500, 700, 701, 702]
    chosen = chosen_steps(_held(*trouble), [[411], [2000]])
    assert chosen is not None
    assert {333, 334, 335, 700, 701, 702, 411} <= chosen
    assert 2000 not in chosen  # it was not examined


def test_many_kinds_of_trouble_do_not_take_more_than_twice_the_room() -> None:
    marked = [[step, step + 1] for step in range(10, 900, 5)]
    chosen = chosen_steps(_held(), marked)
    assert chosen is not None
    assert len(chosen) * PER_STEP <= 2.2 * ROOM


def _row(step: int, site: int, *, nan: int = 0) -> TensorRow:
    return TensorRow(
        step=step, micro_batch=0, seq=site, module=f"m{site}", role="weight", slot="weight", call=0, dtype="float32",
        shape=[4], numel=4, zeros=4 - nan, nan=nan, posinf=0, neginf=0, subnormal=0, absmax=0.0, rms=0.0, exp_lowest=0,
        exp_counts=[], grad_enabled=True,
    )  # fmt: skip


def _write(folder: Path, batches: int, *, together: int) -> Path:
    """Write `batches * together` steps of 5 rows, `together` steps a batch; the weights are NaN on step 17."""
    prepare_folder(folder)
    write_info(folder, RunInfo(status="complete", exit_code=0))
    writer = TraceWriter(folder)
    for batch in range(batches):
        for step in range(batch * together, (batch + 1) * together):
            seen = StepRow(
                step=step, time=1.0, wall_ms=1.0, micro_batches=1, applied=True, examined=True, reason="interval"
            )  # fmt: skip
            writer.append("steps", [seen])
            writer.append("tensors", [_row(step, site, nan=int(step == 17)) for site in range(5)])
        writer.flush()
    writer.close()
    return folder


@pytest.mark.parametrize("together", [1, 3])
def test_only_chosen_steps_are_read_and_the_rest_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(selection, "ROOM", 100)
    run = open_run(_write(tmp_path / "run", 120 // together, together=together))
    steps = {row.step for row in run.tensors()}
    assert {0, 17, 119} <= steps
    assert len(steps) < 40
    assert all(sum(r.step == step for r in run.tensors()) == 5 for step in steps)
    notice = f"{5 * len(steps)} of 600 recorded tensors were judged, those of {len(steps)} steps"
    assert any(notice in gap for gap in diagnose(run).examined.gaps)


def test_a_cut_stream_is_judged_up_to_the_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "ROOM", 100)
    folder = _write(tmp_path / "run", 120, together=1)
    path = folder / "tensors-0.arrows"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    run = open_run(folder)
    steps = {row.step for row in run.tensors()}
    assert 0 in steps
    assert 40 < max(steps) < 80
    assert any("ends in the middle of a batch" in notice for notice in run.notices)
