"""A line of the training's own source, where it still is what ran."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.trace.info import RunInfo

LARGEST_BYTES = 2_000_000
"""Files larger than this are not read for the sake of a line."""

LONGEST = 200
"""Characters of a line that are shown."""


def source_line(info: RunInfo, file: str | None, line: int | None) -> str | None:
    """Return the text of `file`:`line`; None unless it is Python below the run's own folder, unchanged since it ran.

    Names of files come from the trace, which may come from anywhere: nothing outside of the folder that the training
    was started in is read, and nothing where that is another machine's.
    """
    if not file or not line or line < 1 or not info.cwd or info.host != socket.gethostname():
        return None
    try:
        below = Path(info.cwd).resolve()
        path = (below / file).resolve()
        if below.parent == below or not path.is_relative_to(below) or path.suffix != ".py" or not path.is_file():
            return None
        about = path.stat()
        if about.st_size > LARGEST_BYTES or about.st_mtime > info.started:
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, RuntimeError, ValueError):
        return None
    return lines[line - 1].strip()[:LONGEST] if line <= len(lines) else None


def location(file: str | None, line: int | None) -> str:
    """Return `file:line` as text; empty where it is not known."""
    if not file:
        return ""
    return f"{file}:{line}" if line is not None else file
