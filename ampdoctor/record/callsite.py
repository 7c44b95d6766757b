"""Which line of the user's code made a call."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from types import FrameType

_NOT_THE_USERS = (
    os.path.dirname(torch.__file__) + os.sep,
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
)
_CONTEXTLIB = os.path.join(os.path.dirname(os.__file__), "contextlib.py")


class CallSite(NamedTuple):
    """A place in the user's code; the file relative to the working directory where it lies below it."""

    file: str | None
    line: int | None
    function: str | None


def call_site() -> CallSite:
    """Return the innermost calling frame outside torch and ampdoctor."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THE_USERS) and file != _CONTEXTLIB:
            return CallSite(_short(file), frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return CallSite(None, None, None)


def _short(file: str) -> str:
    here = os.getcwd() + os.sep
    return file[len(here) :] if file.startswith(here) else file
