"""Writes a run folder: one Arrow IPC stream per table and rank, complete batches only.

Each flush appends whole batches straight to the file, so that a killed process leaves a stream whose complete batches
stock pyarrow reads back. No compression of our own making, no pickle, no footer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ampdoctor.errors import OutputExistsError, OutputNotWritableError
from ampdoctor.trace.info import FILE_NAME
from ampdoctor.trace.schema import TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CLAIM = ".claim-"
"""Start of the names of the files by which further ranks claim their tables."""

MEETING = ".ranks-"
"""Start of the names of the files by which ranks that were started one by one find their common folder."""


def table_path(folder: Path, table: str, rank: int = 0) -> Path:
    """Return where the stream of `table` and `rank` lies in a run folder."""
    return folder / f"{table}-{rank}.arrows"


def prepare_folder(folder: Path, *, force: bool = False) -> None:
    """Make `folder` ready for a new run.

    With `force`, the files of an earlier run in it are removed, and nothing else; a folder without a run in it is left
    as it is.

    Raises:
        OutputExistsError: it holds something already.
        OutputNotWritableError: it can't be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if force and (folder / FILE_NAME).is_file():
            of_the_run = (path for name in TABLES for path in folder.glob(f"{name}-*.arrows"))
            ours = (path for start in (CLAIM, MEETING) for path in folder.glob(f"{start}*"))
            for old in (*of_the_run, *ours, folder / FILE_NAME):
                old.unlink(missing_ok=True)
        occupied = any(folder.iterdir())
        if not occupied:
            probe = folder / ".ampdoctor"
            probe.touch()
            probe.unlink()
    except OSError as error:
        raise OutputNotWritableError(
            f"cannot write to {folder}: {error.strerror or error}", hint="choose another with --out"
        ) from None
    if occupied:
        raise OutputExistsError(
            f"{folder} is not empty", hint="choose another with --out, or add --force to replace the run"
        )


class TraceWriter:
    """Appends rows to the tables of one run folder.

    Args:
        folder: an existing folder, see `prepare_folder`.
        rank: which of the processes that train together this is.
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.folder = folder
        self.rank = rank
        self._pending: dict[str, list[Any]] = {name: [] for name in TABLES}
        self._batches: list[tuple[str, pa.RecordBatch]] = []
        self._streams: dict[str, pa.RecordBatchStreamWriter] = {}
        self._files: list[pa.NativeFile] = []

    def append(self, table: str, rows: Sequence[Any]) -> None:
        """Queue rows (instances of the table's row type) for the next flush."""
        self._pending[table].extend(rows)

    def append_batch(self, table: str, batch: pa.RecordBatch) -> None:
        """Queue a batch in the table's schema for the next flush."""
        self._batches.append((table, batch))

    def flush(self) -> None:
        """Append everything queued to the files.

        Raises:
            OSError: the disk is full, or the folder is gone.
        """
        batches, self._batches = self._batches, []
        for name, batch in batches:
            self._stream(TABLES[name]).write_batch(batch)
        for name, rows in self._pending.items():
            if rows:
                self._pending[name] = []
                self._stream(TABLES[name]).write_batch(_batch(TABLES[name], rows))

    def close(self) -> None:
        """Flush, end every stream properly and close the files."""
        try:
            self.flush()
            for stream in self._streams.values():
                stream.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files as they are, for when writing has failed."""
        self._streams.clear()
        for file in self._files:
            file.close()
        self._files.clear()

    def _stream(self, table: Table) -> pa.RecordBatchStreamWriter:
        if table.name not in self._streams:
            file = pa.OSFile(str(table_path(self.folder, table.name, self.rank)), "wb")
            self._files.append(file)
            # By itself: its helpers would take the training's processors, and more time than they save.
            options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
            self._streams[table.name] = pa.ipc.new_stream(file, table.arrow, options=options)
        return self._streams[table.name]


def _batch(table: Table, rows: Sequence[Any]) -> pa.RecordBatch:
    arrays = [pa.array([getattr(row, c.name) for row in rows], type=c.type) for c in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.arrow)
