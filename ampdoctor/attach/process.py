"""What can be known of a process before it is touched, and whether attaching to it can work."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ampdoctor.errors import AmpDoctorError

PROC = Path("/proc")

_PYTHON = re.compile(r"python(\d+)\.(\d+)")
_TORCH = re.compile(r"/libtorch|/torch/_C\b")


@dataclass(frozen=True)
class Process:
    """A running process.

    Attributes:
        pid: its number.
        command: its command line.
        version: (major, minor) of its Python; None where that doesn't show.
    """

    pid: int
    command: tuple[str, ...]
    version: tuple[int, int] | None

    @property
    def title(self) -> str:
        """What to call it in a message."""
        return f"process {self.pid} ({' '.join(self.command)[:80]})" if self.command else f"process {self.pid}"

    def environment(self) -> dict[str, str]:
        """Return the environment it was started with; empty where that can't be read."""
        entries = _read(self.pid, "environ").split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    def status(self, field: str) -> str:
        """Return a field of its status, empty where there is none."""
        found = re.search(rf"^{field}:\s*(.*)$", _read(self.pid, "status"), re.MULTILINE)
        return found[1] if found else ""

    def has_torch(self) -> bool:
        """Whether it has loaded torch; it may have where its memory can't be looked at."""
        maps = _read(self.pid, "maps")
        return not maps or _TORCH.search(maps) is not None

    def ended(self) -> bool:
        """Whether it is over, be it that nobody has taken notice yet."""
        return not (PROC / str(self.pid)).exists() or self.status("State")[:1] in {"Z", "X"}


def process(pid: int) -> Process:
    """Return the process `pid`, having checked what can be checked from outside.

    Raises:
        AmpDoctorError: there is none, it is somebody else's, no Python, or can't be attached to for another reason.
    """
    if not PROC.is_dir():
        raise AmpDoctorError(
            "attaching needs Linux", hint="start the training under `ampdoctor run`, or call ampdoctor.watch() in it"
        )
    if not (PROC / str(pid)).exists():
        raise AmpDoctorError(f"there is no process {pid}", hint="see `ps -C python,python3 -o pid,args`")
    found = Process(pid, tuple(_read(pid, "cmdline").split("\0")[:-1]), _version(pid))
    _check(found)
    return found


def _check(found: Process) -> None:
    pid = found.pid
    owner = found.status("Uid").split()[1:2]
    if owner and int(owner[0]) != os.geteuid():
        raise AmpDoctorError(
            f"{found.title} belongs to another user",
            hint=f"attach as that user: sudo -u '#{owner[0]}' ampdoctor attach {pid}",
        )
    if found.ended():
        raise AmpDoctorError(f"{found.title} has ended")
    if found.version is None:
        raise AmpDoctorError(f"{found.title} is no Python process", hint="give the PID of the training itself")
    if not _same_files(pid):
        raise AmpDoctorError(
            f"{found.title} runs in a container of its own",
            hint="attach from inside it: docker exec ... ampdoctor attach PID, with the PID that it has there",
        )
    state = found.status("State")[:1]
    if state == "t":
        raise AmpDoctorError(
            f"{found.title} is being debugged by process {found.status('TracerPid')}",
            hint="leave that debugger first; where it is another `ampdoctor attach`, try again in some seconds",
        )
    if state == "T":
        raise AmpDoctorError(f"{found.title} is stopped", hint=f"let it go on: kill -CONT {pid}")


def _version(pid: int) -> tuple[int, int] | None:
    """Return the version that its executable, or the libpython in it, is called after."""
    try:
        executable = (PROC / str(pid) / "exe").readlink().name
    except OSError:
        executable = ""
    for name in (executable, _read(pid, "maps")):
        found = _PYTHON.search(name)
        if found:
            return int(found[1]), int(found[2])
    return None


def _same_files(pid: int) -> bool:
    """Whether it sees the files that we see."""
    try:
        return (PROC / str(pid) / "ns/mnt").readlink() == (PROC / "self/ns/mnt").readlink()
    except OSError:
        return True


def _read(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
