"""Reading tables that are cut, damaged, foreign, or of another version of the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.errors import AmpDoctorError, TraceCorruptError
from ampdoctor.trace.schema import TABLES, StepRow
from ampdoctor.trace.stream import read_stream
from ampdoctor.trace.writer import table_path
from tests.unit.trace.rows import rows_of, write_batches

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (3, 1, 4)


@pytest.fixture(scope="module", params=TABLES)
def stream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, bytes]:
    """A table, a path to write variants of its stream to, and the bytes of the stream."""
    folder = tmp_path_factory.mktemp("stream")
    write_batches(folder, request.param, *SIZES)
    path = table_path(folder, request.param)
    return request.param, path, path.read_bytes()


def _rows(path: Path, table: str) -> tuple[list[dict[str, Any]], str | None]:
    contents = read_stream(path, TABLES[table])
    return contents.table.to_pylist(), contents.notice


def test_cut_anywhere_it_gives_back_every_complete_batch(stream: tuple[str, Path, bytes]) -> None:
    table, path, data = stream
    whole = [vars(row) for row in rows_of(table, sum(SIZES))]
    complete = [0, 3, 4, 8]
    seen = []
    for length in {*range(0, len(data), 29), *range(len(data) - 12, len(data) + 1)}:
        path.write_bytes(data[:length])
        rows, notice = _rows(path, table)
        assert len(rows) in complete
        assert rows == whole[: len(rows)]
        seen.append((length, len(rows)))
        # All complete batches and then silence, or a word about what follows them.
        assert notice is None or f"the {len(rows)} rows before it" in notice
    assert [n for _, n in sorted(seen)] == sorted(n for _, n in seen)
    assert {n for _, n in seen} == set(complete)


def test_damaged_anywhere_it_reads_or_says_so(stream: tuple[str, Path, bytes]) -> None:
    table, path, data = stream
    required = [c.name for c in TABLES[table].columns if not c.nullable]

    @settings(max_examples=150, deadline=None)
    @given(flips=st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(1, 255)), min_size=1, max_size=4))
    def check(flips: list[tuple[int, int]]) -> None:
        damaged = bytearray(data)
        for place, mask in flips:
            damaged[place] ^= mask
        path.write_bytes(damaged)
        try:
            rows, _ = _rows(path, table)
        except AmpDoctorError as error:
            told = error
        else:
            assert not [name for row in rows for name in required if row[name] is None]
            return
        assert str(path) in told.message
        assert told.hint

    check()


@pytest.mark.parametrize("junk", [b"PK\x03\x04 a zip", b"ARROW1\x00\x00 a file, not a stream", b"{}", b"\x00" * 64])
def test_a_foreign_file(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "steps-0.arrows"
    path.write_bytes(junk)
    with pytest.raises(TraceCorruptError, match=r"steps-0.arrows is not an Arrow stream") as caught:
        read_stream(path, TABLES["steps"])
    assert caught.value.exit_code == 2


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "steps-0.arrows"
    path.touch()
    contents = read_stream(path, TABLES["steps"])
    assert contents.table.num_rows == 0
    assert contents.notice


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "steps-0.arrows"
    path.mkdir()
    with pytest.raises(TraceCorruptError, match="cannot read"):
        read_stream(path, TABLES["steps"])


def _stream_of(path: Path, table: pa.Table) -> Path:
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


@pytest.fixture
def steps() -> pa.Table:
    """Two rows of the steps table."""
    return pa.Table.from_pylist([vars(row) for row in rows_of("steps", 2)], schema=TABLES["steps"].arrow)


def test_columns_of_a_later_version_are_left_out(tmp_path: Path, steps: pa.Table) -> None:
    later = steps.append_column("mood", pa.array(["good", "bad"])).select(["mood", *reversed(steps.column_names)])
    contents = read_stream(_stream_of(tmp_path / "x", later), TABLES["steps"])
    assert contents.table.equals(steps)


def test_columns_that_an_earlier_version_lacked_are_null(tmp_path: Path, steps: pa.Table) -> None:
    contents = read_stream(_stream_of(tmp_path / "x", steps.drop_columns(["grad_norm"])), TABLES["steps"])
    assert contents.table["grad_norm"].null_count == 2
    assert [StepRow(**row).loss for row in contents.table.to_pylist()] == steps["loss"].to_pylist()


def test_a_narrower_type_is_widened(tmp_path: Path, steps: pa.Table) -> None:
    narrow = steps.set_column(0, "step", pa.array([7, 8], pa.int16()))
    contents = read_stream(_stream_of(tmp_path / "x", narrow), TABLES["steps"])
    assert contents.table["step"].to_pylist() == [7, 8]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["step"]), "lacks the column step"),
        (lambda t: t.append_column("step", t["step"]), "has twice the column step"),
        (lambda t: t.set_column(0, "step", pa.array(["a", "b"])), "column step"),
        (lambda t: t.set_column(0, "step", pa.array([1, None])), "column step has nulls"),
        (lambda t: pa.table({"x": [1]}), "lacks the column step"),
    ],
    ids=["missing", "twice", "of another type", "null", "foreign"],
)
def test_a_column_that_is_not_as_it_must_be(tmp_path: Path, steps: pa.Table, change: Any, message: str) -> None:
    path = _stream_of(tmp_path / "x", change(steps))
    with pytest.raises(TraceCorruptError, match=message):
        read_stream(path, TABLES["steps"])
