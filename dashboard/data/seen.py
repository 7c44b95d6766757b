"""One run as it looks from outside: what is known of it without its tables."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ampdoctor.trace.growing import GrowingTable
from ampdoctor.trace.info import RunInfo, read_info
from ampdoctor.trace.run import Run, open_run, ranks_of
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import table_path
from ampdoctor_dashboard.data.signature import signature_of
from ampdoctor_dashboard.data.steps import Steps

if TYPE_CHECKING:
    from pathlib import Path

STALLED_AFTER_S = 60.0
"""A run without news for so long, and for `STALLED_STEPS` of its steps, has stalled."""

STALLED_STEPS = 20


class SeenRun:
    """One run as one of its ranks recorded it.

    Attributes:
        id: its id in the library.
        folder: where it lies.
        ranks: the ranks that recorded.
        rank: the one shown.
        info: run.json.

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
        self._signature = signature_of(folder)  # at first: what is written while the rest is read is news later
        self.info: RunInfo = read_info(folder)
        self.ranks = ranks_of(folder) or (0,)
        self.rank = self.rank_for(rank)

    def rank_for(self, asked: int | None) -> int:
        """Return the rank that is shown where this one is asked for: the first where it is None or did not record."""
        return asked if asked is not None and asked in self.ranks else self.ranks[0]

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
        if not self._signature or not self.is_live:
            return None
        silent = time.time() - max(changed for _, _, changed in self._signature) / 1e9
        if silent <= STALLED_AFTER_S:
            return None
        return silent if silent > STALLED_STEPS * self._typical_wall_ms() / 1000.0 else None

    def _typical_wall_ms(self) -> float:
        """Return the median duration of a step; 0 without any."""
        table = GrowingTable(table_path(self.folder, "steps", self.rank), TABLES["steps"], ("step", "wall_ms"))
        return Steps(table.read_new()).typical_wall_ms
