"""One run, open: its tables as they grow."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ampdoctor.errors import TraceCorruptError
from ampdoctor.trace.growing import GrowingTable
from ampdoctor.trace.info import read_info
from ampdoctor.trace.run import ranks_of
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import table_path
from ampdoctor_dashboard.data.kept import Kept
from ampdoctor_dashboard.data.seen import SeenRun
from ampdoctor_dashboard.data.signature import signature_of
from ampdoctor_dashboard.data.steps import Steps
from ampdoctor_dashboard.data.tensors import COLUMNS, ROWS_AT_ONCE, GrowingIndex, TensorIndex

if TYPE_CHECKING:
    from pathlib import Path

AT_MOST_EVERY_S = 0.5
"""Looks at the folder are no more frequent than this, however many callbacks ask."""

_DAMAGED = "{path} is damaged in the middle; only what lies before is shown"

_CUT = "{path} ends in the middle of a batch; only what lies before is shown"


class OpenedRun(SeenRun):
    """One run as one of its ranks recorded it. Tables are read when first asked for, and go on growing.

    Attributes:
        version: goes up whenever there is something new.
    """

    def __init__(self, run_id: str, folder: Path, rank: int | None = None) -> None:
        super().__init__(run_id, folder, rank)
        self.version = 0
        self._lock = threading.RLock()
        self._kept: dict[str, Kept[Any]] = {}
        self._looked = time.monotonic()
        self._forget()

    def _forget(self) -> None:
        self._growing: dict[str, GrowingTable] = {}
        self._tables: dict[str, pa.Table] = {}
        self._problems: dict[str, str] = {}
        self._index = GrowingIndex()
        self._indexed: GrowingTable | None = None
        self._tensors = TensorIndex()
        self._places: list[tuple[int, GrowingTable]] = []
        self._steps: Steps | None = None

    @property
    def problems(self) -> dict[str, str]:
        """The tables that can't be read, or not to their end, with the reason."""
        with self._lock:
            readers = self._growing | ({"tensors": self._indexed} if self._indexed else {})
            cut = {} if self.is_live else {name: _CUT for name, reader in readers.items() if reader.cut}
            damaged = {name: _DAMAGED for name, reader in readers.items() if reader.damaged}
            said = {
                name: why.format(path=table_path(self.folder, name, self.rank).name)
                for name, why in (cut | damaged).items()
            }
            return said | self._problems

    def kept(self, what: str, most: int) -> Kept[Any]:
        """Return what was derived of the run as it is now, of one kind; all of it is forgotten with the next news.

        Args:
            what: the name of the kind.
            most: how many of it are kept.
        """
        with self._lock:
            return self._kept.setdefault(what, Kept(most))

    def refresh(self) -> int:
        """Look for news, unless that was done a moment ago, and return the version."""
        with self._lock:
            if time.monotonic() - self._looked < AT_MOST_EVERY_S:
                return self.version
            now = signature_of(self.folder)
            if now and now != self._signature:
                before, info, ranks = self.info, read_info(self.folder), ranks_of(self.folder)
                self.info, self.ranks = info, ranks or (0,)
                if before.started != info.started:
                    self._forget()  # recorded anew into the same folder: nothing of before is there any more
                    self.rank = self.rank_for(self.rank)
                for name in [*self._growing]:
                    self._grow(name)
                self._grow_tensors()
                self._steps, self._kept = None, {}
                self.version += 1
                self._signature = now  # at last: what failed before is tried again
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
        """All tensors so far, by site and step: they stay as they are while the run goes on."""
        with self._lock:
            if self._indexed is None:
                self._indexed = self._stream("tensors", COLUMNS)
                self._grow_tensors()
            return self._tensors

    def tensor_row(self, number: int) -> dict[str, Any]:
        """Return all that was recorded of one tensor, by its number in `tensors`: read from the disk.

        Raises:
            TraceCorruptError: there is no such tensor, or it can't be read any more.
        """
        gone = TraceCorruptError(f"{self.folder} no longer holds tensor {number}", hint="reload the page")
        with self._lock:
            if not 0 <= number < len(self.tensors):
                raise gone
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
        raise gone

    def _typical_wall_ms(self) -> float:
        return self.steps.typical_wall_ms

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

    def _grow_tensors(self) -> None:
        """Take in what is new a part at a time, and remember where each lies in the file."""
        reader = self._indexed
        if reader is None:
            return
        try:
            place = reader.onwards()
            while (new := reader.read_new(ROWS_AT_ONCE)).num_rows:
                self._places.append((len(self._index), place))
                self._index.add(new)
                place = reader.onwards()
        except TraceCorruptError as error:
            self._problems["tensors"] = error.message
        self._tensors = self._index.frozen()
