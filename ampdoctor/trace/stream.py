"""One table as an Arrow IPC stream on disk: reading whatever a killed process left of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ampdoctor.errors import TraceCorruptError

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor.trace.schema import Column, Table

_CONTINUATION = b"\xff\xff\xff\xff"
"""First bytes of every message of an Arrow IPC stream."""

_WITHOUT_IT = "delete the file to read the rest of the run without it"


@dataclass(frozen=True)
class StreamContents:
    """What a stream held, and why reading stopped early if it did."""

    table: pa.Table
    notice: str | None


def read_stream(path: Path, table: Table) -> StreamContents:
    """Read every complete batch of the stream at `path`, in the schema of `table`.

    Columns that this version does not know are left out; nullable ones that the file lacks are null.

    Raises:
        TraceCorruptError: the file is no Arrow stream, can't be read, or lacks a column that can't be null.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceCorruptError(
            f"cannot read {path}: {error.strerror or error}", hint=_WITHOUT_IT
        ) from None
    if not data.startswith(_CONTINUATION[: len(data)]):
        raise TraceCorruptError(f"{path} is not an Arrow stream", hint=_WITHOUT_IT)
    batches, notice = _complete_batches(data, path)
    if not batches:
        return StreamContents(table.arrow.empty_table(), notice)
    return StreamContents(_conform(pa.Table.from_batches(batches), table, path), notice)


def _complete_batches(data: bytes, path: Path) -> tuple[list[pa.RecordBatch], str | None]:
    batches: list[pa.RecordBatch] = []
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            for batch in reader:
                # A flipped byte can leave offsets that point outside the buffer; touching those would crash.
                batch.validate(full=True)
                batches.append(batch)
    except (pa.ArrowInvalid, pa.ArrowException, OSError, ValueError):
        rows = sum(b.num_rows for b in batches)
        return (
            batches,
            f"{path.name} ends in the middle of a batch; the {rows} rows before it are used",
        )
    return batches, None


def _conform(found: pa.Table, table: Table, path: Path) -> pa.Table:
    try:
        names = found.column_names
    except UnicodeDecodeError as error:
        raise TraceCorruptError(f"{path} has a damaged schema: {error}", hint=_WITHOUT_IT) from None
    columns = [_column(found, names, column, path) for column in table.columns]
    return pa.table(columns, schema=table.arrow)


def _column(found: pa.Table, names: list[str], column: Column, path: Path) -> pa.ChunkedArray:
    if column.nullable and column.name not in names:
        return pa.nulls(found.num_rows, column.type)
    if names.count(column.name) != 1:
        what = "has twice" if column.name in names else "lacks"
        raise TraceCorruptError(f"{path} {what} the column {column.name}", hint=_WITHOUT_IT)
    try:
        values = found[column.name].cast(column.type)
    except pa.ArrowException as error:
        raise TraceCorruptError(
            f"{path}: column {column.name}: {error}", hint=_WITHOUT_IT
        ) from None
    if values.null_count and not column.nullable:
        raise TraceCorruptError(
            f"{path}: column {column.name} has nulls, which it can't have", hint=_WITHOUT_IT
        )
    return values
