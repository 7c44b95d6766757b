"""A visit: what is recorded of one process, from our side."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ampdoctor.attach.ranks import children_hint
from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from ampdoctor.attach.process import Process
    from ampdoctor.record.launch import Recording

_LOOK_S = 0.1
_END_S = 10.0
"""A process that is killed gives back its memory before it is gone, but its sockets at once."""


class Visit:
    """Follows the recording of one process.

    Args:
        target: the process.
        connection: to the agent in it.

    Attributes:
        target: the process.
        recording: set once its first step has been recorded.
        over: set once nothing more will come.
        error: what has kept it from recording; None if nothing has.
        failure: what has ended the recording too soon; None if nothing has.
    """

    def __init__(self, target: Process, connection: socket.socket) -> None:
        self.target = target
        self._connection = connection
        self.error: AmpDoctorError | None = None
        self.failure: AmpDoctorError | None = None
        self._answered = threading.Event()
        self._told_its_end = self._hung_up = False
        self.recording, self.over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._listen, name="ampdoctor-attach", daemon=True)

    def begin(self, recording: Recording, steps: int | None) -> None:
        """Ask for a recording, and wait until it is about to begin.

        Raises:
            AmpDoctorError: it can't be made.
        """
        settings = {**asdict(recording), "out": str(recording.out.resolve())}
        self._say({"recording": settings, "steps": steps})
        self._thread.start()
        while not self._answered.wait(_LOOK_S):  # in short waits, so that Ctrl-C comes through
            if self.wait(0.0) and not self._answered.wait(_LOOK_S):
                raise AmpDoctorError(self._ended_too_soon())
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        """Ask to end the recording after the step at hand."""
        self._say({"stop": True})

    def lost(self) -> bool:
        """Whether the process has ended without a word. One that is about to end is waited for."""
        until_s = time.monotonic() + _END_S
        while self._hung_up and time.monotonic() < until_s:
            if self.target.ended():
                return True
            time.sleep(_LOOK_S)
        return False

    def wait(self, seconds: float) -> bool:
        """Wait until it is over, or for so long; return whether it is.

        A process that has ended may have left its end of the connection to others that it had started.
        """
        if not self.over.wait(seconds) and self.target.ended():
            self._hung_up = not self._told_its_end
            self.over.set()
        return self.over.is_set()

    def close(self) -> None:
        """Go, whatever the process does then: it ends the recording after the step at hand as well."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that listens
        self._connection.close()

    def _say(self, message: dict[str, Any]) -> None:
        try:
            self._connection.sendall((json.dumps(message) + "\n").encode())
        except OSError:
            self.over.set()

    def _listen(self) -> None:
        try:
            with self._connection.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    self._hear(json.loads(line))
        except (OSError, ValueError):
            pass  # it went
        if not self._answered.is_set():
            self.error = AmpDoctorError(self._ended_too_soon())
        self._hung_up = not self._told_its_end
        self._answered.set()
        self.over.set()

    def _ended_too_soon(self) -> str:
        return f"{self.target.title} ended before it could be recorded"

    def _hear(self, told: dict[str, Any]) -> None:
        event = told["event"]
        if event == "refused":
            self.error = AmpDoctorError(f"cannot record {self.target.title}: {told['reason']}", hint=self._hint(told))
            self._answered.set()
            self.over.set()
        elif event == "waiting":
            self._answered.set()
        elif event == "recording":
            self.recording.set()
        elif event == "failed":
            self.failure = AmpDoctorError(f"{self.target.title}: {told['reason']}")
        elif event == "ended":
            self._told_its_end = True
            self.over.set()

    def _hint(self, told: dict[str, Any]) -> str:
        if "python" in told:
            return f"install it for that Python: {told['python']} -m pip install ampdoctor"
        return children_hint(self.target.pid) if told.get("children") else ""
