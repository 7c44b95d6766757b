"""Where in the user's code a finding lies, as CI services want it: relative to the repository."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Location

_SOURCE = re.compile(r"(?P<file>.+):(?P<line>[1-9]\d{0,8})")


@dataclass(frozen=True)
class Place:
    """A line of code.

    Attributes:
        file: path with slashes; relative where the file lies in the repository that is checked.
        line: counted from 1.
    """

    file: str
    line: int

    @property
    def relative(self) -> bool:
        """Whether the file lies in the repository."""
        return not self.file.startswith("/") and not PureWindowsPath(self.file).drive


def place_in(diagnosis: Diagnosis, location: Location | None = None) -> Place | None:
    """Return the line to show something at: the best that is known.

    Args:
        diagnosis: of the run.
        location: of a finding. Where it names no line, that of the backward pass on its first step is taken. Without a
            location it is about the run as a whole: the script's first line.
    """
    if location is None:
        return _place(diagnosis.lines.start)
    return _place(location.source) or _place(diagnosis.lines.at(location.first_step)) or _place(diagnosis.lines.start)


def _place(source: str | None) -> Place | None:
    found = _SOURCE.fullmatch(source or "")
    return Place(_relative(found["file"]), int(found["line"])) if found else None


def _relative(file: str) -> str:
    """Return `file` relative to the checkout: GitHub's, else the working directory."""
    path = PurePosixPath(file.replace("\\", "/"))
    for root in (os.environ.get("GITHUB_WORKSPACE"), _here()):
        if root and path.is_relative_to(PurePosixPath(root.replace("\\", "/"))):
            return str(path.relative_to(PurePosixPath(root.replace("\\", "/"))))
    return str(path)


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""
