"""What the page Ops shows of local twins."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.info import RunInfo
from ampdoctor_dashboard.data import ops
from ampdoctor_dashboard.data.source_line import LONGEST, source_line
from ampdoctor_dashboard.figures.ops import Place, worst_places
from ampdoctor_dashboard.figures.style import Style
from ampdoctor_dashboard.widgets.ops import table_rows
from tests.dashboard.built import opened

if TYPE_CHECKING:
    from pathlib import Path


def _builder() -> RunBuilder:
    builder = RunBuilder().step().twin_step(kind="local")
    builder.op("aten._to_copy", "up", seq=1, absmax=3.0, inputs_from=[-1])
    builder.op("aten.mm", "up", seq=2, absmax=100.0, inputs_from=[1, -1], flushed=10, first_lost=2)
    builder.op("aten.mul", "up", seq=3, absmax=4.0, inputs_from=[1])
    builder.op("aten.mm", "down", seq=4, absmax=90_000.0, inputs_from=[2, 3], born=40, overflowed=40, first_born=4)
    return builder.op("aten.add", "down", seq=5, inputs_from=[4], absorbed=25, born=0)


def test_first_birth_and_first_loss_are_found(tmp_path: Path) -> None:
    rows = ops.rows_of(opened(tmp_path / "run", _builder()), 0)
    born, lost = ops.first_born(rows), ops.first_lost(rows)
    assert born is not None
    assert (born.module, born.seq) == ("down", 4)
    assert lost is not None
    assert lost.seq == 2


def test_lineage_follows_the_largest_inputs_back(tmp_path: Path) -> None:
    rows = ops.rows_of(opened(tmp_path / "run", _builder()), 0)
    assert [row.seq for row in ops.lineage(rows, rows[3])] == [4, 2, 1]


def test_lineage_ends_where_rows_name_each_other() -> None:
    run = RunBuilder().step().op("a", seq=1, inputs_from=[2]).op("b", seq=2, inputs_from=[1, 2]).build()
    assert [row.seq for row in ops.lineage(run.ops, run.ops[0])] == [1, 2]


def test_worst_kind_of_loss_is_shown_unasked(tmp_path: Path) -> None:
    rows = ops.rows_of(opened(tmp_path / "run", _builder()), 0)
    assert ops.metric_for(rows, "").name == "born"
    assert ops.metric_for(rows[:3], "").name == "flushed"
    assert ops.metric_for(rows, "absorbed").name == "absorbed"
    assert ops.metric_for([], "no such").name == "flushed"
    assert [(row.seq, value) for row, value in ops.worst(rows, ops.METRICS["flushed"], 5)] == [(2, 0.1)]
    assert [value for _, value in ops.worst(rows, ops.METRICS["absorbed"], 5)] == [0.25]


def test_step_that_broke_is_shown_unasked(tmp_path: Path) -> None:
    builder = _builder().step().twin_step(kind="local").op("aten.mm")
    run = opened(tmp_path / "run", builder)
    assert ops.steps_of(run) == [0, 1]
    assert ops.default_step(run) == 0


def test_live_operations_are_not_mixed_with_replayed_ones(tmp_path: Path) -> None:
    builder = _builder().op("aten.mm", seq=4, source="replay").twin_step(kind="replay", confirmed=True)
    assert {row.source for row in ops.rows_of(opened(tmp_path / "run", builder), 0)} == {"live"}


def test_refusals_are_told(tmp_path: Path) -> None:
    run = opened(tmp_path / "run", RunBuilder().step().twin_step(kind="local", declined="out of memory"))
    assert ops.rows_of(run, 0) == []
    assert ops.why_none(run) == "out of memory"


def test_table_holds_shares_in_percent() -> None:
    row = table_rows(RunBuilder().step().op("aten.mm", flushed=25, file="a.py", line=3).build().ops)[0]
    assert (row["flushed"], row["where"], row["absorbed"]) == (25.0, "a.py:3", None)


def test_source_is_shown_only_from_below_the_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    script, secret = home / "train.py", tmp_path / "secret.py"
    for file in (script, secret):
        file.write_text("first\n    y = x.exp()\n" + "z" * 999)
        os.utime(file, (1.0, 1.0))
    (home / "link.py").symlink_to(secret)
    info = RunInfo(cwd=str(home), host=socket.gethostname(), started=time.time())
    assert source_line(info, "train.py", 2) == "y = x.exp()"
    assert source_line(info, str(script), 2) == "y = x.exp()"
    assert source_line(info, str(script), 3) == "z" * LONGEST
    for name, line in (("train.py", 9), ("train.py", 0), ("train.py", None), (None, 1), ("../secret.py", 2),
                       (str(secret), 2), ("link.py", 2), ("no.py", 1), ("\0", 1)):  # fmt: skip
        assert source_line(info, name, line) is None
    elsewhere = RunInfo(cwd=str(home), host="elsewhere", started=time.time())
    assert source_line(elsewhere, "train.py", 2) is None
    changed = RunInfo(cwd=str(home), host=socket.gethostname(), started=0.5)
    assert source_line(changed, "train.py", 2) is None
    assert source_line(RunInfo(cwd="/", host=socket.gethostname(), started=time.time()), str(secret), 2) is None


def test_bars_are_the_worst_first_and_told_apart_without_colour() -> None:
    places = [Place(4, "down · aten.mm", "a.py:1", "float16", False, 0.5), Place(9, "<b>x</b>", "", "", True, 0.1)]
    figure = worst_places(places, "share [%]", Style(), share=True)
    assert [bar.name for bar in figure.data] == ["forward", "backward"]
    assert figure.data[1].marker.pattern.shape == "/"
    assert list(figure.layout.yaxis.ticktext) == ["down · aten.mm", "&lt;b&gt;x&lt;/b&gt;"]
    assert "nothing is lost" in worst_places([], "share", Style(), share=True).layout.annotations[0].text
