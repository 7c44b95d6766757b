"""Reading a table as it grows: of every rank's stream what is new since the last look, and only the columns asked for.

`Run` holds what is judged of a long run. Who shows a run shows all of it, and while it goes on: so this reads whole
streams, remembers where the last complete batch ended, and goes on from there.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa

from ampdoctor.errors import TraceCorruptError
from ampdoctor.trace.stream import CONTINUATION, DAMAGE, WITHOUT_IT, conform

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ampdoctor.trace.schema import Table


_PREFIX = struct.Struct("<4si")
"""What a message begins with: a mark, and the length of what describes it; 0 at the end of a stream."""


class GrowingTable:
    """The rows of one stream, batch by batch as they are flushed.

    Args:
        path: the stream; it may not be there yet.
        table: what it holds.
        columns: the columns wanted, by name; all without any.
    """

    def __init__(self, path: Path, table: Table, columns: Sequence[str] = ()) -> None:
        self._path = path
        self._table = table
        self._columns = [c.name for c in table.columns if not columns or c.name in columns]
        self._schema: pa.Schema | None = None
        self._end = 0
        self._damaged = False

    def onwards(self, columns: Sequence[str] = ()) -> GrowingTable:
        """Return another reader, which goes on from here with other columns."""
        other = GrowingTable(self._path, self._table, columns)
        other._schema, other._end = self._schema, self._end
        return other

    @property
    def pending(self) -> int:
        """Bytes behind the last complete batch: being written, or cut off; of a stream that was closed its end mark."""
        try:
            return max(self._path.stat().st_size - self._end, 0)
        except OSError:
            return 0

    @property
    def damaged(self) -> bool:
        """What follows the last batch was there as a whole at the last look and can't be read: it never will be."""
        return self._damaged

    @property
    def cut(self) -> bool:
        """More follows the last batch than the mark of the end: a part of a batch."""
        return self.pending > _PREFIX.size

    def read_new(self, most_rows: int | None = None) -> pa.Table:
        """Return the rows that were flushed since the last call, empty where there are none; at most about `most_rows`.

        Raises:
            TraceCorruptError: the file is no stream of this table.
        """
        batches = self._read(most_rows) if self.pending else []
        if not batches:
            return self._table.arrow.empty_table().select(self._columns)
        return conform(pa.Table.from_batches(batches), self._table, self._path, self._columns)

    def _read(self, most_rows: int | None) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        try:
            with pa.memory_map(str(self._path)) as file:
                try:
                    self._read_into(batches, file, most_rows)
                except (EOFError, StopIteration, *DAMAGE):
                    # The end of the file or the stream's mark of it, or a batch of which a part is still to come.
                    self._damaged = _is_whole(file, self._end)
        except OSError:
            return batches
        return batches

    def _read_into(self, batches: list[pa.RecordBatch], file: pa.MemoryMappedFile, most_rows: int | None) -> None:
        rows = 0
        file.seek(self._end)
        if self._schema is None:
            self._check_beginning()
            self._schema = pa.ipc.read_schema(file)
            self._end = file.tell()
        schema, options = self._schema.serialize().to_pybytes(), self._options(self._schema)
        while most_rows is None or rows < most_rows:
            message = pa.ipc.read_message(file).serialize().to_pybytes()
            with pa.ipc.open_stream(pa.py_buffer(schema + message), options=options) as one:
                batch = one.read_next_batch()
            # A flipped byte can leave offsets that point outside the buffer; touching those would crash.
            batch.validate(full=True)
            rows += batch.num_rows
            batches.append(batch)
            self._end = file.tell()

    def _options(self, schema: pa.Schema) -> pa.ipc.IpcReadOptions:
        """Return how to read: the columns asked for, and no thread for each, which takes longer than it saves."""
        fields = [number for number, name in enumerate(schema.names) if name in self._columns]
        return pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)

    def _check_beginning(self) -> None:
        with self._path.open("rb") as file:
            head = file.read(len(CONTINUATION))
        if head != CONTINUATION[: len(head)]:
            raise TraceCorruptError(f"{self._path} is not an Arrow stream", hint=WITHOUT_IT)


def _is_whole(file: pa.MemoryMappedFile, begin: int) -> bool:
    """Return whether what lies at `begin` is there as a whole, so that nothing can come which would make it readable.

    The end of the file and the mark of a stream's end are not: nothing is missing there.
    """
    file.seek(begin)
    left: int = file.size() - begin - _PREFIX.size
    head: bytes = file.read(_PREFIX.size)
    if head[: len(CONTINUATION)] != CONTINUATION[: len(head)]:
        return True
    if left < 0:
        return False
    length: int = _PREFIX.unpack(head)[1]
    if length <= 0:
        return length < 0 or left > 0
    if length > left:
        return False
    try:
        return _body_length(file.read(length)) <= left - length
    except struct.error:
        return True


def _body_length(described: bytes) -> int:
    """Return the length of a message's body, as its description (a flatbuffer) has it: field 3 of the table Message."""
    (table,) = struct.unpack_from("<I", described, 0)
    fields = table - struct.unpack_from("<i", described, table)[0]
    (size,) = struct.unpack_from("<H", described, fields)
    (place,) = struct.unpack_from("<H", described, fields + 10) if size >= 12 else (0,)
    length: int = struct.unpack_from("<q", described, table + place)[0] if place else 0
    return length
