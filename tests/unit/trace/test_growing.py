"""A table that is read while it grows comes out as if it were read when it was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.errors import TraceCorruptError
from ampdoctor.trace.growing import GrowingTable
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import TraceWriter, table_path
from tests.unit.trace.rows import rows_of, write_batches

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (3, 1, 4)


@pytest.fixture(params=TABLES)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, bytes]:
    """A table, where its stream lies, and the bytes of the stream."""
    write_batches(tmp_path, request.param, *SIZES)
    path = table_path(tmp_path, request.param)
    return request.param, path, path.read_bytes()


def _plain(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_each_row_comes_once_wherever_the_file_ends_in_between(written: tuple[str, Path, bytes]) -> None:
    name, path, data = written
    whole = [vars(row) for row in rows_of(name, sum(SIZES))]

    @settings(max_examples=20, deadline=None)
    @given(ends=st.lists(st.integers(0, len(data)), max_size=6))
    def check(ends: list[int]) -> None:
        path.unlink(missing_ok=True)
        growing = GrowingTable(path, TABLES[name])
        rows: list[dict[str, Any]] = []
        for end in sorted(ends):
            path.write_bytes(data[:end])
            rows += _plain(growing.read_new())
            assert rows == whole[: len(rows)]
        path.write_bytes(data)
        rows += _plain(growing.read_new())
        assert rows == whole
        assert _plain(growing.read_new()) == []

    check()


def test_while_the_writer_writes(tmp_path: Path) -> None:
    growing = GrowingTable(table_path(tmp_path, "steps"), TABLES["steps"], ["loss", "step"])
    assert growing.read_new().num_rows == 0
    assert growing.pending == 0
    writer = TraceWriter(tmp_path)
    for n in range(4):
        writer.append("steps", rows_of("steps", 2, 2 * n))
        writer.flush()
        assert growing.read_new()["step"].to_pylist() == [r.step for r in rows_of("steps", 2, 2 * n)]
        assert growing.pending == 0
    writer.close()
    assert growing.read_new().column_names == ["step", "loss"]


def test_only_so_many_rows_at_a_time(tmp_path: Path) -> None:
    write_batches(tmp_path, "steps", 3, 3, 3)
    growing = GrowingTable(table_path(tmp_path, "steps"), TABLES["steps"])
    assert [growing.read_new(4).num_rows for _ in range(3)] == [6, 3, 0]


def test_what_is_damaged_is_not_read_and_what_lies_before_it_is(tmp_path: Path) -> None:
    write_batches(tmp_path, "tensors", 3, 1, close=False)
    path = table_path(tmp_path, "tensors")
    sound = path.stat().st_size
    write_batches(tmp_path, "tensors", 3, 1, 4, close=False)
    data = bytearray(path.read_bytes())
    data[sound + 4 :] = b"\xff" * (len(data) - sound - 4)
    path.write_bytes(data)
    growing = GrowingTable(path, TABLES["tensors"])
    assert growing.read_new().num_rows == 4
    assert growing.pending == len(data) - sound


@pytest.mark.parametrize("junk", [b"PK\x03\x04 a zip", b"{}", b"\x00" * 64])
def test_a_foreign_file(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "steps-0.arrows"
    path.write_bytes(junk)
    with pytest.raises(TraceCorruptError, match=r"steps-0.arrows is not an Arrow stream"):
        GrowingTable(path, TABLES["steps"]).read_new()


def test_a_whole_batch_that_can_not_be_read_is_damage_and_a_part_of_one_is_not(tmp_path: Path) -> None:
    write_batches(tmp_path, "steps", 3, close=False)
    path = table_path(tmp_path, "steps")
    first = path.stat().st_size
    write_batches(tmp_path, "steps", 3, 1, 4)
    data = path.read_bytes()
    for end in range(first, len(data) + 1, 7):
        path.write_bytes(data[:end])
        growing = GrowingTable(path, TABLES["steps"])
        growing.read_new()
        assert not growing.damaged
    for place in (first, first + 8):  # the mark of the message; what describes it
        path.write_bytes(data[:place] + b"\xee" * 4 + data[place + 4 :])
        growing = GrowingTable(path, TABLES["steps"])
        assert growing.read_new().num_rows == 3
        assert growing.damaged
        assert growing.cut
