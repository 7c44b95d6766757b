"""Rows are what `to_pylist` would make of a table, value for value and type for type."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ampdoctor.trace.rows import as_rows


@dataclass(frozen=True)
class _Row:
    number: int | None
    share: float | None
    flag: bool | None
    word: str | None
    numbers: list[int]
    remark: str | None = None


SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("share", pa.float64()),
        ("flag", pa.bool_()),
        ("word", pa.string()),
        pa.field("numbers", pa.list_(pa.int64()), nullable=False),
        ("remark", pa.string()),
    ]
)

entries = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "share": st.none() | st.floats(allow_nan=False),
        "flag": st.none() | st.booleans(),
        "word": st.none() | st.sampled_from(["", "out", "weight", "µ"]),
        "numbers": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
        "remark": st.none() | st.just("seldom"),
    }
)


@given(chunks=st.lists(st.lists(entries, max_size=6), max_size=3), cut=st.tuples(st.integers(0, 8), st.integers(0, 12)))
def test_rows_are_what_arrow_says(chunks: list[list[dict[str, object]]], cut: tuple[int, int]) -> None:
    batches = [pa.RecordBatch.from_pylist(chunk, schema=SCHEMA) for chunk in chunks]
    table = pa.Table.from_batches(batches, schema=SCHEMA).slice(*cut)  # offsets that are not 0
    rows = as_rows(table, _Row)
    assert [asdict(row) for row in rows] == table.to_pylist()
    assert [[type(v) for v in asdict(row).values()] for row in rows] == [
        [type(v) for v in entry.values()] for entry in table.to_pylist()
    ]


def test_a_missing_number_is_not_zero() -> None:
    table = pa.Table.from_pylist([{"number": None}, {"number": 0}], schema=pa.schema([SCHEMA[0]]))

    @dataclass(frozen=True)
    class Only:
        number: int | None

    assert [row.number for row in as_rows(table, Only)] == [None, 0]
