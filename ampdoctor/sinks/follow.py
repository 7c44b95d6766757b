"""Reads a run folder as it grows: each recorded step once, in order, and only when all of it is there.

The recorder flushes all tables in turn, and begins the next flush when it is done with one. So the steps of the last
batch may still lack rows of other tables; those of the batches before it are complete. Where run.json says that the run
is over, all are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ampdoctor.trace.info import read_info
from ampdoctor.trace.run import Run, ranks_of
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.stream import read_stream
from ampdoctor.trace.writer import table_path

if TYPE_CHECKING:
    from pathlib import Path

OF_THE_RUN = frozenset({"modules", "optimizers", "scaler", "twin_steps"})
"""Tables that hold what earlier steps have said of later ones, and little of each: they are read whole."""

AT_A_TIME = 32
"""Examined steps in one stretch, at most. Of a model with 2000 tensors they take some 100 MB as rows."""


class Follower:
    """Returns what is new in a run folder since it was last asked.

    Args:
        folder: the run folder; it may still be empty or half written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rank: int | None = None
        self._told = 0

    def new(self, *, everything: bool = False) -> Run | None:
        """Return the run as if it had only the steps that are new, or the next of very many; None without any.

        Args:
            everything: the recording is known to be over, also where run.json could not say so.

        Raises:
            AmpDoctorError: the folder can't be read, or not yet.
        """
        info = read_info(self._folder)  # before the tables: what it says of them then stays true
        steps = self._steps()
        if steps is None:
            return None
        open_rows = 0 if everything or info.status in {"complete", "crashed"} else _rows_of_last_batch(steps)
        new = _stretch(steps.slice(self._told, max(steps.num_rows - open_rows - self._told, 0)))
        if not new.num_rows:
            return None
        self._told += new.num_rows
        return Run(info, lambda name: (new if name == "steps" else self._load(name, new["step"]), []), self._folder)

    def _steps(self) -> pa.Table | None:
        if self._rank is None:
            ranks = ranks_of(self._folder)
            if not ranks:
                return None
            self._rank = ranks[0]
        return self._read("steps")

    def _load(self, name: str, steps: pa.ChunkedArray) -> pa.Table:
        """Return what `name` holds of the given steps. All examined ones: those of a long run are no choice here."""
        if name == "tensors":
            wanted = set(steps.to_pylist())
            return self._read(name, wanted)
        found = self._read(name)
        return found if name in OF_THE_RUN else found.filter(pc.is_in(found["step"], steps.combine_chunks()))

    def _read(self, name: str, wanted: set[int] | None = None) -> pa.Table:
        path = table_path(self._folder, name, self._rank or 0)
        if not path.is_file():
            return TABLES[name].arrow.empty_table()
        return read_stream(path, TABLES[name], None if wanted is None else lambda _: wanted).table


def _stretch(steps: pa.Table) -> pa.Table:
    """Return the steps before the first examined one that is too many."""
    examined = pc.indices_nonzero(steps["examined"])
    return steps if len(examined) <= AT_A_TIME else steps.slice(0, examined[AT_A_TIME].as_py())


def _rows_of_last_batch(steps: pa.Table) -> int:
    chunks = steps["step"].chunks
    return len(chunks[-1]) if chunks else 0
