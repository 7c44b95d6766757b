"""The folder that the dashboard was opened on: the runs in it, and the only way to one of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError, RunNotFoundError
from ampdoctor.trace.folders import check_holds_a_run
from ampdoctor.trace.info import FILE_NAME, RunInfo, read_info
from ampdoctor_dashboard.data.opened import OpenedRun
from ampdoctor_dashboard.data.seen import SeenRun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEEPEST = 3
"""Levels of folders that are searched for runs."""

MOST = 2000
"""Folders that are listed."""

KEPT_OPEN = 4
"""Runs whose tables are kept in memory."""

ITSELF = "."
"""Id of the run where the folder is one."""


class Kind(str, Enum):
    """What a folder is."""

    RUN = "run"
    EMPTY = "empty"
    BROKEN = "broken"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Entry:
    """One folder of the library.

    Attributes:
        id: its path below the root, by which pages ask for it.
        folder: where it lies.
        kind: what it is.
        info: run.json, where it could be read.
        problem: why it is no run, in one sentence; empty where it is one.
    """

    id: str
    folder: Path
    kind: Kind
    info: RunInfo | None = None
    problem: str = ""


class Library:
    """The runs below one folder. Nothing outside of it can be opened, through links either.

    Args:
        root: the folder; it may be a run itself.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._opened: list[OpenedRun] = []
        self._lock = threading.Lock()

    @property
    def is_run(self) -> bool:
        """The folder is one run, and there is nothing to choose."""
        return (self.root / FILE_NAME).is_file()

    def entries(self) -> list[Entry]:
        """Return the runs, newest first, then what is none."""
        found = [self._entry(folder) for folder in self._folders()]
        return sorted(found, key=lambda e: (e.kind is not Kind.RUN, -(e.info.started if e.info else 0.0), e.id))

    def open(self, run_id: str, rank: int | None = None) -> OpenedRun:
        """Return the run called `run_id` as `rank` recorded it (the first where None).

        Raises:
            AmpDoctorError: there is no such run in this folder, or it can't be read.
        """
        with self._lock:
            folder = self._within(run_id)
            known = (o for o in self._opened if o.folder == folder and o.rank == o.rank_for(rank))
            opened = next(known, None) or OpenedRun(run_id, folder, rank)
            others = [o for o in self._opened if o is not opened]
            self._opened = [*others, opened][-KEPT_OPEN:]
            return opened

    def look_at(self, run_id: str) -> SeenRun:
        """Return the run called `run_id` without its tables: nothing of it is kept.

        Raises:
            AmpDoctorError: there is no such run in this folder, or it can't be read.
        """
        return SeenRun(run_id, self._within(run_id))

    def _within(self, run_id: str) -> Path:
        """Return the folder of an id, resolved: what comes from outside must not lead outside."""
        unknown = RunNotFoundError(
            f"there is no run {run_id!r} in this folder", hint="choose one from the list of runs"
        )
        if not run_id or "\0" in run_id:
            raise unknown
        try:
            folder = (self.root / run_id).resolve()
            inside = folder.is_relative_to(self.root) and folder.is_dir()
        except (OSError, RuntimeError, ValueError):
            raise unknown from None
        if not inside:
            raise unknown
        return folder

    def _folders(self) -> Iterator[Path]:
        if self.is_run:
            yield self.root
            return
        waiting, listed = [(self.root, 0)], 0
        while waiting and listed < MOST:
            folder, depth = waiting.pop(0)
            for child in _children(folder):
                if not child.resolve().is_relative_to(self.root):
                    continue
                deeper = [] if (child / FILE_NAME).exists() or depth + 1 >= DEEPEST else _children(child)
                if deeper:
                    waiting.append((child, depth + 1))
                else:
                    listed += 1
                    yield child

    def _entry(self, folder: Path) -> Entry:
        run_id = folder.relative_to(self.root).as_posix()
        try:
            check_holds_a_run(folder)
        except AmpDoctorError as error:
            return Entry(run_id, folder, Kind.EMPTY, problem=error.message)
        if not (folder / FILE_NAME).is_file():
            return Entry(run_id, folder, Kind.FOREIGN, problem=f"it has no {FILE_NAME}: ampdoctor did not write it")
        try:
            return Entry(run_id, folder, Kind.RUN, read_info(folder))
        except AmpDoctorError as error:
            return Entry(run_id, folder, Kind.BROKEN, problem=error.message)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
    except OSError:
        return []
