"""Reading a table as it grows: of every rank's stream what is new since the last look, and only the columns asked for.

`Run` holds what is judged of a long run. Who shows a run shows all of it, and while it goes on: so this reads whole
streams, remembers where the last complete batch ended, and goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ampdoctor.errors import TraceCorruptError
from ampdoctor.trace.stream import CONTINUATION, DAMAGE, WITHOUT_IT, conform

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ampdoctor.trace.schema import Table


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
        rows = 0
        try:
            with pa.memory_map(str(self._path)) as file:
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
        except (EOFError, StopIteration, *DAMAGE):
            # The end of the file or the stream's mark of it, or a batch of which a part is still to come.
            return batches
        return batches

    def _options(self, schema: pa.Schema) -> pa.ipc.IpcReadOptions:
        """Return how to read: the columns asked for, and no thread for each, which takes longer than it saves."""
        fields = [number for number, name in enumerate(schema.names) if name in self._columns]
        return pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)

    def _check_beginning(self) -> None:
        with self._path.open("rb") as file:
            head = file.read(len(CONTINUATION))
        if head != CONTINUATION[: len(head)]:
            raise TraceCorruptError(f"{self._path} is not an Arrow stream", hint=WITHOUT_IT)
