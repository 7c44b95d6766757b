"""stdout and stderr as they may be: closed, full, or a pipe whose reader is gone."""

from __future__ import annotations

import contextlib
import errno
import io
from typing import IO

from ampdoctor.errors import AmpDoctorError


class Remarks(io.TextIOBase):
    """stderr, which may be closed, full or without a reader: then nobody is left to tell."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        with contextlib.suppress(OSError, ValueError):
            return self._stream is not None and self._stream.isatty()
        return False

    def write(self, what: str) -> int:
        """Write, or lose, `what`."""
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(what)
        return len(what)

    def flush(self) -> None:
        """Flush what there is."""
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.flush()


class Output(Remarks):
    """stdout, which is what a command is for: only a reader that has seen enough may leave it."""

    def write(self, what: str) -> int:
        """Write, or lose, `what`."""
        if self._stream is None:
            raise AmpDoctorError("there is no standard output", hint="it is closed: leave out `>&-`")
        try:
            self._stream.write(what)
        except OSError as error:
            self._failed(error)
        return len(what)

    def flush(self) -> None:
        """Flush what there is."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if error.errno not in {errno.EPIPE, errno.ESHUTDOWN}:
            reason = error.strerror or str(error)
            hint = "nothing else was changed: make room, or write it elsewhere"
            raise AmpDoctorError(f"cannot write the output: {reason}", hint=hint) from None
