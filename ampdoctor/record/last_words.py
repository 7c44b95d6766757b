"""The exception that ends the script: the recorder is told of it, and the user's traceback shows none of our frames."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor.record.guard import told

if TYPE_CHECKING:
    from types import TracebackType

    from ampdoctor.record.recorder import Recorder

_OWN = f"{Path(__file__).parents[1]}{os.sep}"


class LastWords:
    """Stands before `sys.excepthook`.

    Args:
        recorder: is told of the exception, and stopped.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._ahead = sys.excepthook

    def listen(self) -> None:
        """Take the place of the hook that is there."""
        self._ahead = sys.excepthook
        sys.excepthook = self._hook

    def leave(self) -> None:
        """Give it back, unless somebody has taken ours."""
        if sys.excepthook == self._hook:
            sys.excepthook = self._ahead

    def _hook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._recorder.noted(error)
        self._recorder.stop(exception=told(error))
        for link in _chain(error):
            link.__traceback__ = _without_own_frames(link.__traceback__)
        self._ahead(kind, error, _without_own_frames(trace))


def _chain(error: BaseException) -> list[BaseException]:
    """Return `error` and those that it came from: a traceback shows them all."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and all(link is not other for other in found):
            found.append(link)
            waiting += [link.__cause__, link.__context__]
    return found


def _without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and _is_own(trace):
        trace = trace.tb_next
    link = trace
    while link is not None:
        while link.tb_next is not None and _is_own(link.tb_next):
            link.tb_next = link.tb_next.tb_next
        link = link.tb_next
    return trace


def _is_own(trace: TracebackType) -> bool:
    # By the file: what runs for a function of torch's has the globals of that.
    return trace.tb_frame.f_code.co_filename.startswith(_OWN)
