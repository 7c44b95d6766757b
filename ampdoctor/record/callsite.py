"""Which line of the user's code made a call."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from types import FrameType

# Strings, because comparing them is all that happens on each frame of each call.
_NOT_THE_USERS = (f"{Path(torch.__file__).parent}{os.sep}", f"{Path(__file__).resolve().parents[1]}{os.sep}")
_CONTEXTLIB = contextlib.__file__


class CallSite(NamedTuple):
    """A place in the user's code; the file relative to the working directory where it lies below it."""

    file: str | None
    line: int | None
    function: str | None


def call_site() -> CallSite:
    """Return the innermost calling frame outside torch and ampdoctor."""
    return shortened(full_call_site())


def shortened(site: CallSite) -> CallSite:
    """Return `site` with its file relative to the working directory; that takes a hundred times as long as the rest."""
    return site if site.file is None else site._replace(file=_short(site.file))


def full_call_site() -> CallSite:
    """Return the innermost calling frame outside torch and ampdoctor, with its file as Python knows it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THE_USERS) and file != _CONTEXTLIB:
            return CallSite(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return CallSite(None, None, None)


def is_the_users(file: str) -> bool:
    """Whether a source file belongs neither to torch nor to ampdoctor."""
    return not file.startswith(_NOT_THE_USERS) and file != _CONTEXTLIB


def _short(file: str) -> str:
    try:
        here = os.getcwd()  # noqa: PTH109 - asked on every step, and Path.cwd takes ten times as long
    except OSError:  # somebody has removed it
        return file
    return file.removeprefix(f"{here}{os.sep}")
