"""One run, open: its tables as they grow."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from ampdoctor_dashboard.data.signature import signature_of
from ampdoctor_dashboard.data.steps import Steps
from ampdoctor_dashboard.data.tensors import COLUMNS, ROWS_AT_ONCE, TensorIndex

from ampdoctor.errors import TraceCorruptError
from ampdoctor.trace.growing import GrowingTable
from ampdoctor.trace.info import RunInfo, read_info
from ampdoctor.trace.run import Run, open_run, ranks_of
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import table_path

if TYPE_CHECKING:
    from pathlib import Path

AT_MOST_EVERY_S = 0.5
"""Looks at the folder are no more frequent than this, however many callbacks ask."""

STALLED_AFTER_S = 60.0
"""A run without news for so long, and for `STALLED_STEPS` of its steps, has stalled."""

STALLED_STEPS = 20


class OpenedRun:
    """One run as one of its ranks recorded it. Tables are read when first asked for, and go on growing.

    Attributes:
        id: its id in the library.
        folder: where it lies.
        ranks: the ranks that recorded.
        rank: the one shown.
        version: goes up whenever there is something new.
        info: run.json as it is now.

    Args:
        run_id: its id.
        folder: the run folder.
        rank: which rank's tables; the first where None.

    Raises:
        AmpDoctorError: run.json can't be read.
    """

    def __init__(self, run_id: str, folder: Path, rank: int | None = None) -> None:
        self.id = run_id
        self.folder = folder
        self.info: RunInfo = read_info(folder)
        self.ranks = ranks_of(folder) or (0,)
        self.rank = rank if rank in self.ranks else self.ranks[0]
        self.version = 0
        self._lock = threading.RLock()
        self._signature = signature_of(folder)
        self._looked = time.monotonic()
        self._forget()

    def _forget(self) -> None:
        self._growing: dict[str, GrowingTable] = {}
        self._tables: dict[str, pa.Table] = {}
        self._problems: dict[str, str] = {}
        self._indexed: GrowingTable | None = None
        self._tensors: TensorIndex | None = None
        self._places: list[tuple[int, GrowingTable]] = []
        self._steps: Steps | None = None

    @property
    def problems(self) -> dict[str, str]:
        """The tables that can't be read, with the reason."""
        return dict(self._problems)

    def refresh(self) -> int:
        """Look for news, unless that was done a moment ago, and return the version."""
        with self._lock:
            if time.monotonic() - self._looked < AT_MOST_EVERY_S:
                return self.version
            now = signature_of(self.folder)
            if now and now != self._signature:
                self._signature = now
                started, self.info = self.info.started, read_info(self.folder)
                self.ranks = ranks_of(self.folder) or (0,)
                if started != self.info.started:
                    self._forget()  # recorded anew into the same folder: nothing of before is there any more
                for name in [*self._growing]:
                    self._grow(name)
                if self._tensors is not None:
                    self._grow_tensors(self._tensors)
                self._steps = None
                self.version += 1
            self._looked = time.monotonic()
            return self.version

    def table(self, name: str) -> pa.Table:
        """Return all rows of a table so far, empty where nothing was recorded or it can't be read (`problems`)."""
        with self._lock:
            if name not in self._growing:
                self._growing[name] = self._stream(name, ())
                self._tables[name] = TABLES[name].arrow.empty_table()
                self._grow(name)
            return self._tables[name]

    @property
    def steps(self) -> Steps:
        """All steps so far, as columns."""
        with self._lock:
            if self._steps is None:
                self._steps = Steps(self.table("steps"))
            return self._steps

    @property
    def tensors(self) -> TensorIndex:
        """All tensors so far, by site and step."""
        with self._lock:
            if self._tensors is None:
                self._tensors = TensorIndex()
                self._indexed = self._stream("tensors", COLUMNS)
                self._grow_tensors(self._tensors)
            return self._tensors

    def tensor_row(self, number: int) -> dict[str, Any]:
        """Return all that was recorded of one tensor, by its number in `tensors`: read from the disk.

        Raises:
            TraceCorruptError: the table is damaged.
        """
        with self._lock:
            firsts = [first for first, _ in self._places]
            first, place = self._places[bisect_right(firsts, number) - 1]
            reader = place.onwards()
        while first <= number:
            new = reader.read_new(1)
            if not new.num_rows:
                break
            if number < first + new.num_rows:
                found: dict[str, Any] = new.slice(number - first, 1).to_pylist()[0]
                return found
            first += new.num_rows
        raise TraceCorruptError(f"{self.folder} no longer holds tensor {number}", hint="reload the page")

    def judged(self) -> Run:
        """Return the run as rules see it, read anew.

        Raises:
            AmpDoctorError: a table is damaged.
        """
        run = open_run(self.folder)
        return run if self.rank == run.ranks[0] or self.rank not in run.ranks else run.of_rank(self.rank)

    @property
    def is_live(self) -> bool:
        """No end of the run was recorded, and its process is not known to be gone."""
        return Run(self.info, lambda name: (TABLES[name].arrow.empty_table(), [])).unfinished

    @property
    def stalled_for_s(self) -> float | None:
        """Seconds since the last news of a live run, where that is longer than its steps account for; else None."""
        if not self.is_live or not self._signature:
            return None
        silent = time.time() - max(changed for _, _, changed in self._signature) / 1e9
        usual = self.steps.typical_wall_ms / 1000.0
        return silent if silent > max(STALLED_AFTER_S, STALLED_STEPS * usual) else None

    def _stream(self, name: str, columns: tuple[str, ...]) -> GrowingTable:
        return GrowingTable(table_path(self.folder, name, self.rank), TABLES[name], columns)

    def _grow(self, name: str) -> None:
        try:
            new = self._growing[name].read_new()
        except TraceCorruptError as error:
            self._problems[name] = error.message
            return
        if new.num_rows:
            self._tables[name] = pa.concat_tables([self._tables[name], new])

    def _grow_tensors(self, tensors: TensorIndex) -> None:
        """Take in what is new a part at a time, and remember where each lies in the file."""
        reader = self._indexed
        if reader is None:
            return
        try:
            place = reader.onwards()
            while (new := reader.read_new(ROWS_AT_ONCE)).num_rows:
                self._places.append((len(tensors), place))
                tensors.add(new)
                place = reader.onwards()
        except TraceCorruptError as error:
            self._problems["tensors"] = error.message
