"""Writes on a thread of its own, so that the training never waits for a disk.

What waits is bounded: while the disk is too slow, the tensors of whole examined steps are given up, and the rows of
those steps say so. What is known of every step (vitals, calls) is small and waits longer.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ampdoctor.trace.schema import StepRow

if TYPE_CHECKING:
    import pyarrow as pa

    from ampdoctor.trace.writer import TraceWriter

ROOM = 32 << 20
"""Bytes of tensors that may wait: half of the 64 MB that a recording may take."""

ROWS = 100_000
"""Other rows that may wait, of half a kilobyte each; beyond them only these tables get any."""

_ALWAYS = frozenset({"steps", "scaler", "modules", "optimizers", "twin_steps"})

_HUNG = 60.0
"""Seconds without a row written, at the end, after which the disk is given up: a network's may hang for good."""

_PATIENCE = 2.0
"""Seconds to wait for a disk that has already failed, or where the process is about to end."""

SOON = 0.05
"""Seconds until an examined step is on disk: a run that is killed has told what it last saw."""

LATER = 2.0
"""Seconds until any step is: a killed run loses at most this much."""


class Step(NamedTuple):
    """What is to be written of a step."""

    rows: list[tuple[str, Any]]
    batches: list[pa.RecordBatch]

    @property
    def bytes(self) -> int:
        """Memory that its tensors take."""
        return sum(batch.nbytes for batch in self.batches)


class BackgroundWriter:
    """Hands steps to a `TraceWriter` on another thread.

    An error there is raised here, by the next call.
    """

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._changed = threading.Condition()
        self._waiting: list[Step] = []
        self._bytes = self._rows = 0
        self._due = float("inf")
        self._closing = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = threading.Thread(
            target=self._work, name="ampdoctor-writer", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is about to end, and from Python 3.12 on starts no thread any more
            self._thread = None

    def put(self, step: Step, *, soon: bool) -> None:
        """Queue a step, to be on disk soon or a little later; never waits.

        Raises:
            OSError: what was put before could not be written.
        """
        self._raise()
        if self._thread is None:
            self._write_out([step])
            return
        size = step.bytes
        with self._changed:
            if self._bytes and self._bytes + size > ROOM:
                step, size = _given_up(step), 0
            if self._rows > ROWS:
                step = _bare(step)
            self._waiting.append(step)
            self._bytes += size
            self._rows += len(step.rows)
            self._due = min(self._due, time.monotonic() + (SOON if soon else LATER))
            self._changed.notify_all()

    def hurry(self) -> None:
        """Write what waits before the process ends, unless that takes long."""
        with self._changed:
            self._due = 0.0
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._rows or self._error is not None, _PATIENCE)

    def close(self) -> None:
        """Write what waits and end the streams.

        Raises:
            OSError: it could not be written.
        """
        self._end(_HUNG)
        self._raise()
        if self._at_work:
            raise OSError(f"nothing could be written for {_HUNG:.0f} seconds")
        self._writer.close()

    def abandon(self) -> None:
        """Leave the files as they are, once the thread is done with what it has begun."""
        with self._changed:
            self._waiting.clear()
        self._end(_PATIENCE)
        if not self._at_work:
            self._writer.abandon()

    @property
    def _at_work(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _end(self, seconds: float) -> None:
        """Let the thread end, unless it gets nothing written for so long."""
        if self._thread is None:
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        left = -1
        while self._thread.is_alive() and self._rows != left:
            left = self._rows
            self._thread.join(seconds)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            while self._write():
                pass
        except Exception as error:  # noqa: BLE001 - raised where the training's guard can take it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _write(self) -> bool:
        """Wait until something is due and write it; return False at the end."""
        with self._changed:
            while not self._closing and (left := self._due - time.monotonic()) > 0:
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            steps, self._waiting = self._waiting, []
            closing, self._due = self._closing, float("inf")
            size, rows = self._bytes, self._rows  # what is counted so far is just what is taken
        self._write_out(steps)
        with self._changed:
            self._bytes -= size
            self._rows -= rows
            self._changed.notify_all()
        return not closing

    def _write_out(self, steps: list[Step]) -> None:
        for step in steps:
            for table, row in step.rows:
                self._writer.append(table, [row])
            for batch in step.batches:
                self._writer.append_batch("tensors", batch)
        self._writer.flush()


def _given_up(step: Step) -> Step:
    """Return the step without its tensors, and with what says so."""
    return Step(_said(step.rows, sum(batch.num_rows for batch in step.batches), examined=False), [])


def _bare(step: Step) -> Step:
    """Return the step without the rows of most tables, and with what says so."""
    kept = [row for row in step.rows if row[0] in _ALWAYS]
    return Step(_said(kept, len(step.rows) - len(kept)), step.batches)


def _said(rows: list[tuple[str, Any]], dropped: int, **changes: Any) -> list[tuple[str, Any]]:
    def said(row: Any) -> Any:
        more = isinstance(row, StepRow) and dropped
        return replace(row, dropped=dropped + (row.dropped or 0), **changes) if more else row

    return [(table, said(row)) for table, row in rows]
