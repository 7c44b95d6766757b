"""`Run`: what a run folder says, and whether its process has ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ampdoctor.errors import RunNotFoundError, TraceCorruptError
from ampdoctor.histogram import ExponentHistogram
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.histograms import histogram_of
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.run import Run, open_run
from ampdoctor.trace.schema import TABLES, StepRow, TensorRow
from ampdoctor.trace.writer import TraceWriter, table_path
from tests.unit.trace.rows import rows_of, write_batches

if TYPE_CHECKING:
    from pathlib import Path

HERE = socket.gethostname()


def test_an_empty_run_has_every_table(tmp_path: Path) -> None:
    write_info(tmp_path, RunInfo())
    run = open_run(tmp_path)
    assert {name: run.table(name).num_rows for name in TABLES} == dict.fromkeys(TABLES, 0)
    everything: list[list[Any]] = [run.steps, run.scaler, run.calls, run.modules, run.optimizers, run.tensors()]
    assert everything == [[]] * 6
    assert run.path == tmp_path
    assert not run.cut


def test_it_opens_by_name_too(tmp_path: Path) -> None:
    write_info(tmp_path, RunInfo(pid=3))
    assert open_run(str(tmp_path)).info.pid == 3
    with pytest.raises(RunNotFoundError):
        open_run(tmp_path / "other")


def test_a_bad_table_is_told_when_the_run_is_opened(tmp_path: Path) -> None:
    write_info(tmp_path, RunInfo())
    table_path(tmp_path, "scaler").write_bytes(b"not Arrow at all")
    with pytest.raises(TraceCorruptError, match=r"scaler-0\.arrows"):
        open_run(tmp_path)


def test_a_cut_table_is_read_with_a_notice(tmp_path: Path) -> None:
    write_info(tmp_path, RunInfo())
    rows = write_batches(tmp_path, "steps", 3, 4)
    path = table_path(tmp_path, "steps")
    path.write_bytes(path.read_bytes()[:-20])
    run = open_run(tmp_path)
    assert run.steps == rows[:3]
    assert [n for n in run.notices if "steps-0.arrows" in n and "3 rows" in n] == list(run.notices)


def test_rows_are_chosen_by_role_and_dtype() -> None:
    run = (
        RunBuilder().step()
        .tensor("a", "activation", dtype="float16", exponents={0: 1})
        .tensor("b", "weight_grad", dtype="float16", exponents={0: 1})
        .tensor("c", "weight_grad", dtype="float32", exponents={0: 1})
        .build()
    )  # fmt: skip

    def names(rows: list[TensorRow]) -> str:
        return "".join(row.module for row in rows)

    assert names(run.tensors()) == "abc"
    assert names(run.tensors("weight_grad")) == "bc"
    assert names(run.tensors("weight_grad", dtypes={"float16"})) == "b"
    assert names(run.tensors("weight_grad", "activation", dtypes=["float32"])) == "c"
    assert names(run.tensors(dtypes=[])) == ""
    assert names(run.tensors("update")) == ""


def test_what_is_missing() -> None:
    run = RunBuilder().step(loss=None, grad_norm=1.0).step(loss=None).build()
    needs = ["steps", "steps.loss", "steps.grad_norm", "steps.step", "scaler", "scaler.scale"]
    assert run.missing(needs) == ["steps.loss", "scaler", "scaler.scale"]
    assert run.missing([]) == []


def test_the_histogram_of_a_row_is_that_of_its_values() -> None:
    values = np.array([0.0, -0.0, 1.5, -3.0, 2.0**-20, np.inf, -np.inf, np.nan, np.nan])
    run = RunBuilder().step().values("m", "activation", values).build()
    found, expected = histogram_of(run.tensors()[0]), ExponentHistogram.from_values(values)
    for name in ("zeros", "nan", "posinf", "neginf", "absmax", "numel", "nonzero"):
        assert getattr(found, name) == getattr(expected, name)
    assert found.sum_squares == pytest.approx(expected.sum_squares, rel=1e-12)
    assert [found.count_below(e) for e in range(-30, 5)] == [expected.count_below(e) for e in range(-30, 5)]


def test_rows_cannot_be_changed() -> None:
    row = RunBuilder().step().build().steps[0]
    assert isinstance(row, StepRow)
    with pytest.raises(AttributeError):
        row.loss = 3.0  # type: ignore[misc]


@pytest.fixture(scope="module")
def gone() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("info", "cut"),
    [
        ({"status": "complete", "ended": 1.0, "exit_code": 0}, False),
        ({"status": "degraded"}, False),
        ({"status": "crashed", "ended": 1.0, "exit_code": 1}, False),
        ({"status": "crashed", "exit_code": -9}, True),
        ({"status": "crashed", "exit_code": -15}, True),
        # Ctrl-C: the recorder has closed its tables, and then the process died of the signal.
        ({"status": "crashed", "ended": 1.0, "exit_code": -2}, False),
        ({"status": "running", "pid": os.getpid(), "host": HERE}, False),
        ({"status": "running", "pid": 0, "host": HERE}, False),
        ({"status": "running", "pid": -1, "host": HERE}, False),
        ({"status": "running", "pid": 2**70, "host": HERE}, True),
        ({"status": "running", "pid": 1, "host": HERE}, False),
    ],
)
def test_whether_a_run_was_cut(info: dict[str, Any], cut: bool) -> None:
    assert _run(**info).cut is cut


def test_a_running_process_that_is_gone(gone: int) -> None:
    assert _run(pid=gone, host=HERE).cut
    # Of another machine's processes nothing is known.
    assert not _run(pid=gone, host="another-" + HERE).cut


def test_a_run_is_unfinished_while_its_process_is_there_or_not_known_to_be_gone(gone: int) -> None:
    assert _run(pid=os.getpid(), host=HERE).unfinished
    assert not _run(pid=gone, host=HERE).unfinished
    assert not _run(pid=os.getpid(), host=HERE, status="complete").unfinished
    far = _run(pid=gone, host="another-" + HERE)
    assert (far.unfinished, far.elsewhere) == (True, True)
    assert not _run(pid=gone, host=HERE).elsewhere


def _run(**info: Any) -> Run:
    return RunBuilder(**({"status": "running"} | info)).build()


def test_ranks_are_not_counted_as_if_they_took_turns(tmp_path: Path) -> None:
    write_info(tmp_path, RunInfo(status="complete", world_size=2))
    for rank in (0, 1):
        writer = TraceWriter(tmp_path, rank)
        writer.append("steps", rows_of("steps", 3))
        writer.close()
    run = open_run(tmp_path)
    assert run.ranks == (0, 1)
    assert len(run.steps) == 3
