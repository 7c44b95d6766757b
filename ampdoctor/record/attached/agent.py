"""The thread in the training process that talks with whoever attached: one line of JSON after another.

From the visitor comes `{"recording": ..., "steps": ...}`, and then `{"stop": true}` or nothing more. To it go events:
`arrived`, `refused`, `waiting`, `recording`, `failed`, `ended`. A visitor that is gone, however it went, wants no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampdoctor.record.launch import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.record.attached.session import Session

_LOOK_S = 0.1

_busy = threading.Lock()
"""One recording at a time."""

_guests: dict[socket.socket, Session | None] = {}
"""Who is here, and what is recorded for them."""


def serve(connection: socket.socket) -> None:
    """Do what the visitor at the other end of `connection` asks for, until it goes. Never raises."""
    _guests[connection] = None
    try:
        _answer(connection)
    finally:
        _guests.pop(connection, None)


def _answer(connection: socket.socket) -> None:
    with contextlib.suppress(OSError), connection:
        tell = _Teller(connection)
        if not _busy.acquire(blocking=False):
            tell("refused", reason="another `ampdoctor attach` is recording this process")
            return
        try:
            _serve(connection, tell)
        except Exception as error:  # noqa: BLE001 - the process is the user's
            tell("refused", reason=f"{type(error).__name__}: {error}")
        finally:
            _busy.release()


def _forget_all() -> None:
    """In a forked child, which has our thread's things and not the thread: it is as if nobody had come.

    A connection that it kept would keep the visitor waiting when the process that it belongs to has died.
    """
    global _busy  # noqa: PLW0603 - it is held by a thread that isn't here
    _busy = threading.Lock()
    for connection, session in list(_guests.items()):
        connection.close()
        if session is not None:
            session.disown()
    _guests.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class _Teller:
    """Sends events; the training's thread calls it as well, so that it neither raises nor waits long."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def __call__(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, **more}) + "\n"
        with self._lock, contextlib.suppress(OSError):
            # Where the user lets SIGPIPE kill the process, a visitor that has gone would.
            self._connection.sendall(line.encode(), socket.MSG_NOSIGNAL)


def _serve(connection: socket.socket, tell: _Teller) -> None:
    lines = _lines(connection)
    wanted = next(lines, None)
    if wanted is None:
        return
    tell("arrived", python=platform.python_version(), executable=sys.executable)
    session = _begin(wanted, tell)
    if session is None:
        return
    _guests[connection] = session
    session.begin()
    for line in lines:
        if line.get("stop"):
            break
    session.ask()


def _begin(wanted: dict[str, Any], tell: _Teller) -> Session | None:
    """Begin what is wanted; None where that can't be, which is told."""
    if not _torch_is_there():
        tell("refused", reason="torch has not been imported there", children=True)
        return None
    # Not before: both import torch.
    from ampdoctor.record.attached.look import why_not
    from ampdoctor.record.attached.session import Session

    reason = why_not()
    if reason is not None:
        tell("refused", reason=reason, children=True)
        return None
    recording = wanted["recording"]
    return Session(Recording(**{**recording, "out": Path(recording["out"])}), wanted["steps"], tell)


def _torch_is_there() -> bool:
    """Whether this process has imported torch; an import under way is waited for."""
    while (torch := sys.modules.get("torch")) is not None:
        if not getattr(torch.__spec__, "_initializing", False):
            return True
        time.sleep(_LOOK_S)
    return False


def _lines(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield what comes in, until the other end closes."""
    waiting = b""
    while chunk := connection.recv(1 << 16):
        *whole, waiting = (waiting + chunk).split(b"\n")
        for line in whole:
            yield json.loads(line)
