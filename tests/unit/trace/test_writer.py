"""A run folder is made ready, and tables are written batch by batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ampdoctor.errors import OutputExistsError, OutputNotWritableError
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.run import open_run
from ampdoctor.trace.schema import TABLES, VERSION
from ampdoctor.trace.writer import TraceWriter, prepare_folder, table_path
from tests.unit.trace.rows import rows_of, write_batches

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("table", TABLES)
def test_stock_pyarrow_reads_what_was_written(tmp_path: Path, table: str) -> None:
    rows = write_batches(tmp_path, table, 3, 1, 4)
    with table_path(tmp_path, table).open("rb") as file, pa.ipc.open_stream(file) as reader:
        batches = list(reader)
    assert [b.num_rows for b in batches] == [3, 1, 4]
    assert [b for batch in batches for b in batch.to_pylist()] == [vars(row) for row in rows]
    metadata = batches[0].schema.metadata
    assert metadata == {b"ampdoctor.schema_version": str(VERSION).encode(), b"ampdoctor.table": table.encode()}


@pytest.mark.parametrize("table", TABLES)
def test_rows_come_back_as_they_were(tmp_path: Path, table: str) -> None:
    rows = write_batches(tmp_path, table, 2, 5)
    write_info(tmp_path, RunInfo())
    run = open_run(tmp_path)
    assert (run.tensors() if table == "tensors" else getattr(run, table)) == rows
    assert run.notices == ()


def test_every_flush_can_be_read_at_once(tmp_path: Path) -> None:
    write_info(tmp_path, RunInfo())
    writer = TraceWriter(tmp_path)
    for count in range(4):
        assert len(open_run(tmp_path).steps) == count
        writer.append("steps", rows_of("steps", 1, count))
        assert len(open_run(tmp_path).steps) == count
        writer.flush()
    writer.close()
    assert len(open_run(tmp_path).steps) == 4


def test_a_table_without_rows_has_no_file(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path)
    writer.flush()
    writer.append("steps", [])
    writer.flush()
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_ranks_lie_beside_each_other(tmp_path: Path) -> None:
    write_info(tmp_path, RunInfo(world_size=2))
    for rank in (1, 0):
        writer = TraceWriter(tmp_path, rank)
        writer.append("steps", rows_of("steps", 1, rank))
        writer.close()
    run = open_run(tmp_path)
    assert run.ranks == (0, 1)
    assert run.steps == rows_of("steps", 1)


def test_what_is_abandoned_ends_where_it_is(tmp_path: Path) -> None:
    write_info(tmp_path, RunInfo())
    rows = write_batches(tmp_path, "steps", 3, close=False)
    assert open_run(tmp_path).steps == rows


def test_a_new_folder_with_parents(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("name", ["run.json", "steps-0.arrows", "notes.txt", ".hidden"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("kept", encoding="utf-8")
    with pytest.raises(OutputExistsError, match="is not empty") as caught:
        prepare_folder(tmp_path)
    assert "--force" in caught.value.hint
    assert (tmp_path / name).read_text(encoding="utf-8") == "kept"


def test_force_removes_an_earlier_run_and_nothing_else(tmp_path: Path) -> None:
    for name in ("run.json", "steps-0.arrows", "tensors-13.arrows"):
        (tmp_path / name).touch()
    prepare_folder(tmp_path, force=True)
    assert list(tmp_path.iterdir()) == []
    for name in ("run.json", "steps-0.arrows", "mine.arrows", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(OutputExistsError):
        prepare_folder(tmp_path, force=True)
    assert {p.name for p in tmp_path.iterdir()} >= {"mine.arrows", "notes.txt"}


def test_a_place_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputNotWritableError, match="cannot write to") as caught:
            prepare_folder(place)
        assert caught.value.exit_code == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    for place in (tmp_path, tmp_path / "below"):
        with pytest.raises(OutputNotWritableError, match="Permission denied"):
            prepare_folder(place)


def test_force_replaces_a_run_of_several_ranks(tmp_path: Path) -> None:
    write_info(tmp_path, RunInfo())
    for name in ("steps-0.arrows", "steps-1.arrows", ".claim-1"):
        (tmp_path / name).touch()
    prepare_folder(tmp_path, force=True)
    assert list(tmp_path.iterdir()) == []


def test_force_touches_nothing_where_there_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "mine-0.arrows").touch()
    (tmp_path / "steps-0.arrows").touch()
    with pytest.raises(OutputExistsError):
        prepare_folder(tmp_path, force=True)
    assert len(list(tmp_path.iterdir())) == 2
