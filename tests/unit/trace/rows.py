"""Rows of every table, with values that differ from row to row."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

_SAMPLES: dict[Any, Any] = {
    pa.string(): lambda i: f"text {i} é",
    pa.int64(): lambda i: i * 10**12 - 1,
    pa.float64(): lambda i: i + 0.125,
    pa.bool_(): lambda i: i % 2 == 0,
    pa.list_(pa.int64()): lambda i: list(range(i % 4)),
    pa.list_(pa.float64()): lambda i: [0.5] * (i % 3),
    pa.list_(pa.string()): lambda i: ["a", "b"][: i % 3],
}


def rows_of(table: str, count: int, start: int = 0) -> list[Any]:
    """Return `count` rows; every third has null wherever that is allowed."""
    schema = TABLES[table]
    columns = {f.name: c for f, c in zip(fields(schema.row), schema.columns, strict=True)}
    return [
        schema.row(**{name: None if c.nullable and i % 3 == 2 else _SAMPLES[c.type](i) for name, c in columns.items()})
        for i in range(start, start + count)
    ]


def write_batches(folder: Path, table: str, *sizes: int, close: bool = True) -> list[Any]:
    """Write one batch of each size and return all rows."""
    writer = TraceWriter(folder)
    rows: list[Any] = []
    for size in sizes:
        batch = rows_of(table, size, len(rows))
        writer.append(table, batch)
        writer.flush()
        rows += batch
    if close:
        writer.close()
    else:
        writer.abandon()
    return rows
