"""One table as an Arrow IPC stream on disk: reading whatever a killed process left of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ampdoctor.errors import TraceCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from ampdoctor.trace.schema import Column, Table

    Choice = Callable[[Mapping[int, "Held"]], set[int] | None]

CONTINUATION = b"\xff\xff\xff\xff"
"""First bytes of every message of an Arrow IPC stream."""

WITHOUT_IT = "delete the file to read the rest of the run without it"
"""What to do about a stream that can't be read."""

_NONFINITE = ("nan", "posinf", "neginf")

_AT_ONCE = 64
"""Batches that are counted together: one by one, numpy takes longer to be called than to count."""

DAMAGE = (pa.ArrowInvalid, pa.ArrowException, OSError, ValueError)
"""What pyarrow raises on a stream that is damaged, or ends early."""


class Held(NamedTuple):
    """What a stream holds of one step: its rows, and the nonfinite elements in them."""

    rows: int
    nonfinite: int


@dataclass(frozen=True)
class StreamContents:
    """What a stream held, and why reading stopped early if it did.

    Attributes:
        table: the rows that were read.
        notice: why reading stopped early; None where it did not.
        left_out: rows that were there and not chosen.
    """

    table: pa.Table
    notice: str | None
    left_out: int = 0


def read_stream(path: Path, table: Table, choose: Choice | None = None) -> StreamContents:
    """Read every complete batch of the stream at `path`, in the schema of `table`.

    Columns that this version does not know are left out; nullable ones that the file lacks are null.

    Args:
        path: the file.
        table: what it should hold.
        choose: given what the table `tensors` holds of each step, returns the steps that are wanted, None for all. Of
            the others nothing more is read.

    Raises:
        TraceCorruptError: the file is no Arrow stream, can't be read, or lacks a column that can't be null.
    """
    try:
        # Mapped, not read: of a long run most is never looked at.
        data = pa.memory_map(str(path)).read_buffer() if path.stat().st_size else pa.py_buffer(b"")
    except OSError as error:
        raise TraceCorruptError(f"cannot read {path}: {error.strerror or error}", hint=WITHOUT_IT) from None
    head = data[: len(CONTINUATION)].to_pybytes()
    if not head.startswith(CONTINUATION[: len(head)]):
        raise TraceCorruptError(f"{path} is not an Arrow stream", hint=WITHOUT_IT)
    wanted = _wanted(data, choose) if choose is not None else None
    batches, cut = _batches(data) if wanted is None else _chosen(data, wanted)
    left_out = 0 if wanted is None else wanted.rows - sum(b.num_rows for b in batches)
    rows = sum(b.num_rows for b in batches) + left_out
    text = f"{path.name} ends in the middle of a batch; the {rows} rows before it are used"
    notice = text if cut else None
    if not batches:
        return StreamContents(table.arrow.empty_table(), notice, left_out)
    return StreamContents(conform(pa.Table.from_batches(batches), table, path), notice, left_out)


@dataclass(frozen=True)
class _Wanted:
    """Which batches hold a step that was chosen, and how many rows there are in all."""

    steps: pa.Array
    batches: frozenset[int]
    rows: int
    cut: bool


def _wanted(data: pa.Buffer, choose: Choice) -> _Wanted | None:
    """Ask `choose`; None where everything is wanted, or where the file lacks what it would ask for."""
    try:
        names = pa.ipc.open_stream(data).schema.names
    except (*DAMAGE, UnicodeDecodeError):
        return None
    if any(names.count(name) != 1 for name in ("step", *_NONFINITE)):
        return None
    held: dict[int, Held] = {}
    of_batch: list[set[int]] = []
    cut = False
    waiting: list[pa.RecordBatch] = []
    try:
        for batch in _opened(data, [names.index(name) for name in ("step", *_NONFINITE)]):
            waiting.append(batch)
            if len(waiting) == _AT_ONCE:
                counting, waiting = waiting, []
                of_batch += _count(counting, held)
    except DAMAGE:
        cut = True
    try:
        of_batch += _count(waiting, held)
    except DAMAGE:
        cut = True
    chosen = choose(held)
    if chosen is None:
        return None
    hit = frozenset(number for number, steps in enumerate(of_batch) if steps & chosen)
    rows = sum(h.rows for h in held.values())
    return _Wanted(pa.array(sorted(chosen), pa.int64()), hit, rows, cut)


def _count(batches: list[pa.RecordBatch], held: dict[int, Held]) -> list[set[int]]:
    """Add to `held` what the batches hold of each step; return the steps of each batch: of one, mostly."""
    of_batch: list[set[int]] = [set() for _ in batches]
    lengths = np.array([b.num_rows for b in batches], int)
    if not lengths.sum():
        return of_batch
    starts = np.cumsum(lengths) - lengths
    steps = np.concatenate([b["step"].to_numpy() for b in batches])
    new = np.empty(len(steps), bool)
    np.not_equal(steps[1:], steps[:-1], out=new[1:])
    new[starts[lengths > 0]] = True
    begins = np.flatnonzero(new)
    number = np.searchsorted(starts, begins, "right") - 1
    found = (number, steps[begins], np.diff(begins, append=len(steps)), _nonfinite(batches, begins))
    for place, step, count, wrong in zip(*(f.tolist() for f in found), strict=True):
        of_batch[place].add(step)
        known = held.get(step, Held(0, 0))
        held[step] = Held(known.rows + count, known.nonfinite + wrong)
    return of_batch


def _nonfinite(batches: list[pa.RecordBatch], begins: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return the nonfinite elements of all rows from each of `begins` to the next: seldom any."""
    columns = [[b[name].to_numpy() for b in batches] for name in _NONFINITE]
    if not any(part.any() for parts in columns for part in parts):
        return np.zeros(len(begins), np.int64)
    nan, posinf, neginf = (np.concatenate(parts) for parts in columns)
    counts: NDArray[np.int64] = np.add.reduceat(nan + posinf + neginf, begins)
    return counts


def _batches(data: pa.Buffer) -> tuple[list[pa.RecordBatch], bool]:
    """Return the complete batches, and whether the stream ends early."""
    batches: list[pa.RecordBatch] = []
    try:
        batches.extend(_opened(data, []))
    except DAMAGE:
        return batches, True
    return batches, False


def _opened(data: pa.Buffer, fields: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches one after another, of the given fields or, without any, of all."""
    # A thread for each column of a batch of some thousand rows costs four times what it saves.
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    with pa.ipc.open_stream(data, options=options) as reader:
        for batch in reader:
            # A flipped byte can leave offsets that point outside the buffer; touching those would crash.
            batch.validate(full=True)
            yield batch


def _chosen(data: pa.Buffer, wanted: _Wanted) -> tuple[list[pa.RecordBatch], bool]:
    """Return the rows of the chosen steps, and whether the stream ends early."""
    messages = pa.ipc.MessageReader.open_stream(data)
    found: list[pa.RecordBatch] = []
    try:
        schema = pa.ipc.read_schema(messages.read_next_message())
        for number in range(max(wanted.batches, default=-1) + 1):
            message = messages.read_next_message()
            if number in wanted.batches:
                batch = pa.ipc.read_record_batch(message, schema)
                batch.validate(full=True)
                found.append(batch.filter(pc.is_in(batch["step"], wanted.steps)))
    except (*DAMAGE, StopIteration):
        return found, True
    return found, wanted.cut


def conform(found: pa.Table, table: Table, path: Path, columns: Collection[str] = ()) -> pa.Table:
    """Return what was read of the file at `path` in the schema of `table`: all columns, or those named.

    Raises:
        TraceCorruptError: a column that can't be null is missing, or holds something else.
    """
    try:
        names = found.column_names
    except UnicodeDecodeError as error:
        raise TraceCorruptError(f"{path} has a damaged schema: {error}", hint=WITHOUT_IT) from None
    wanted = [column for column in table.columns if not columns or column.name in columns]
    schema = pa.schema([table.arrow.field(column.name) for column in wanted], table.arrow.metadata)
    return pa.table([_column(found, names, column, path) for column in wanted], schema=schema)


def _column(found: pa.Table, names: list[str], column: Column, path: Path) -> pa.ChunkedArray:
    if column.nullable and column.name not in names:
        return pa.nulls(found.num_rows, column.type)
    if names.count(column.name) != 1:
        what = "has twice" if column.name in names else "lacks"
        raise TraceCorruptError(f"{path} {what} the column {column.name}", hint=WITHOUT_IT)
    try:
        values = found[column.name].cast(column.type)
    except pa.ArrowException as error:
        raise TraceCorruptError(f"{path}: column {column.name}: {error}", hint=WITHOUT_IT) from None
    if values.null_count and not column.nullable:
        raise TraceCorruptError(f"{path}: column {column.name} has nulls, which it can't have", hint=WITHOUT_IT)
    return values
