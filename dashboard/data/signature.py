"""What a run folder looks like from outside: it has changed if this has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

Signature = tuple[tuple[str, int, int], ...]
"""Name, size in bytes and time of the last change (ns) of each file."""


def signature_of(folder: Path) -> Signature:
    """Return the signature of what the recorder has written to `folder`; empty where it can't be read."""
    try:
        with os.scandir(folder) as entries:
            files = [entry for entry in entries if entry.name.endswith((".arrows", ".json"))]
            stats = [(entry.name, entry.stat()) for entry in files]
    except OSError:
        return ()
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))
