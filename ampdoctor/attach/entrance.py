"""The ways into a process, the gentlest first."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampdoctor.attach.debuggers import run_in
from ampdoctor.attach.payload import payload
from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.attached.door import armed_address, folder, knock, listen, other_end, sweep

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from ampdoctor.attach.process import Process

_LOOK_S = 0.2
_HINT_AFTER_S = 5.0


def enter(target: Process, tell: Callable[[str], None]) -> socket.socket:
    """Return a connection to our agent in `target`.

    An armed process has it already. Else it is started there: by `sys.remote_exec` where both Pythons have that (3.14),
    and by a debugger where not.

    Args:
        target: the process.
        tell: called with a line for the person who waits.

    Raises:
        AmpDoctorError: there is no way in, or the process ended meanwhile.
    """
    armed = knock(armed_address(target.pid))
    if armed is not None:
        if other_end(armed)[0] == target.pid:
            return armed
        armed.close()  # in a container that shares our /tmp, another process has that number
    sweep()
    with tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=folder()) as work:
        address = Path(work) / "door"
        with listen(address) as door:
            _start(target, payload(address), Path(work))
            return _await(door, target, tell)


def _start(target: Process, source: str, work: Path) -> None:
    remote_exec: Any = getattr(sys, "remote_exec", None)
    if remote_exec is None or target.version != sys.version_info[:2]:
        run_in(target, source, work)
        return
    script = work / "payload.py"
    script.write_text(source, encoding="utf-8")
    try:
        remote_exec(target.pid, str(script))
    except (OSError, RuntimeError):  # not allowed, or switched off there: a debugger may do better, or says why not
        run_in(target, source, work)


def _await(door: socket.socket, target: Process, tell: Callable[[str], None]) -> socket.socket:
    """Wait for the agent, which comes once the main thread is back in Python."""
    door.settimeout(_LOOK_S)
    began_s, told = time.monotonic(), False
    while True:
        try:
            connection, _ = door.accept()
        except TimeoutError:
            if target.ended():
                raise AmpDoctorError(f"{target.title} has ended") from None
            if not told and time.monotonic() - began_s > _HINT_AFTER_S:
                told = True
                tell("waiting for its main thread, which is in a call that has not returned to Python; Ctrl-C to leave")
            continue
        connection.setblocking(True)
        return connection
