"""Where visitor and training meet: a socket in a folder that only this user can enter."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import struct
from pathlib import Path

from ampdoctor.errors import AmpDoctorError

_TEMPORARY = Path("/tmp")  # noqa: S108 - whose folder it is, and that nobody else enters it, is checked
"""Not what TMPDIR says, which visitor and training need not agree on."""

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group, as Linux tells them of the other end of a socket."""


def folder() -> Path:
    """Return the folder of sockets, made where it is missing.

    Raises:
        AmpDoctorError: it can't be made, or is not ours alone.
    """
    path = _TEMPORARY / f"ampdoctor-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise AmpDoctorError(f"cannot make {path}: {error.strerror or error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise AmpDoctorError(f"{path} is not a folder of yours alone", hint="remove it")
    return path


def sweep() -> None:
    """Remove what processes that were killed have left: a name begins with the number of the process."""
    for left in folder().iterdir():
        owner = re.match(r"\d+", left.name)
        if owner is None or Path("/proc", owner[0]).exists():
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def armed_address(pid: int) -> Path:
    """Return where the process `pid` listens if it is armed."""
    return folder() / f"{pid}.armed"


def listen(address: Path) -> socket.socket:
    """Return a socket that listens at `address`, in the place of whatever was left there."""
    address.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.bind(str(address))
        door.listen(1)
    except OSError:
        door.close()
        raise
    return door


def knock(address: Path) -> socket.socket | None:
    """Return a connection to whoever listens at `address`; None where nobody does."""
    visitor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        visitor.connect(str(address))
    except OSError:
        visitor.close()
        return None
    return visitor


def other_end(connection: socket.socket) -> tuple[int, int]:
    """Return the process at the other end of `connection`, and its user."""
    process, user, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return int(process), int(user)
