"""Folders that are no run, though one might think so: told with what they are instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.errors import RunNotFoundError
from ampdoctor.trace.info import FILE_NAME
from ampdoctor.trace.writer import CLAIM, MEETING

if TYPE_CHECKING:
    from pathlib import Path

NEWEST = 3
"""Runs named to whoever gives the folder that holds them."""

_OURS = (CLAIM, MEETING, f".{FILE_NAME}.", ".ampdoctor")
"""Beginnings of the names of files that are there before anything is recorded."""


def check_holds_a_run(folder: Path) -> None:
    """Look at a folder before it is read as a run; one that is missing or unreadable is left to the reader.

    Raises:
        RunNotFoundError: nothing was recorded in it, or it holds runs and is none.
    """
    try:
        if _nothing_recorded(folder):
            raise RunNotFoundError(
                f"nothing was recorded in {folder}: its run ended before the first step did, or is still on the way",
                hint="look at what the script printed last; if it was killed, record it again",
            )
        runs = [] if (folder / FILE_NAME).is_file() else _newest_runs(folder)
    except OSError:
        return
    if runs:
        raise RunNotFoundError(
            f"{folder} is not a run: it has no {FILE_NAME}",
            hint="it holds runs: give one of them. The newest: " + ", ".join(map(str, runs)),
        )


def _nothing_recorded(folder: Path) -> bool:
    """Whether the folder was made ready for a run, and that is all; run.json is empty while it is being claimed."""
    contents = list(folder.iterdir())
    return all(path.name.startswith(_OURS) or _is_empty_claim(path) for path in contents)


def _is_empty_claim(path: Path) -> bool:
    return path.name == FILE_NAME and path.stat().st_size == 0


def _newest_runs(folder: Path) -> list[Path]:
    """Return the newest runs that lie in the folder, newest first."""
    begun = [(info.stat().st_mtime, info.parent) for info in folder.glob(f"*/{FILE_NAME}")]
    return [run for _, run in sorted(begun, reverse=True)[:NEWEST]]
