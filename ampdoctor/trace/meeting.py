"""One run folder for ranks that were started one by one: each finds it by itself, without a word to the others."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor.trace.writer import MEETING, prepare_folder

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOLD = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
"""What a launcher such as torchrun tells each rank in its environment."""

_SAME = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")

_numbers = itertools.count(1)
"""A process may record several trainings, and its siblings the same ones."""


@dataclass(frozen=True)
class Launch:
    """The launch that this process is one rank of.

    Attributes:
        marker: name of a file that says in a folder whose it is: that of this launch, on this machine, and of no other.
        began: when the launcher was started; "" where the system does not tell.
        leads: whether this is the first rank on this machine, which writes run.json and speaks for the others.
    """

    marker: str
    began: str
    leads: bool


def is_rank() -> bool:
    """Whether a launcher has started this process as one of several ranks."""
    told = [os.environ.get(name, "") for name in _TOLD]
    return all(text.isdecimal() for text in told) and int(told[-1]) > 1


def launch() -> Launch | None:
    """Return the launch that this process belongs to; None where it is no rank, or the only one."""
    if not is_rank():
        return None
    launcher = os.getppid()
    ticks, began = _start_of(launcher)
    same = [os.environ.get(name, "") for name in _SAME]
    parts = [str(launcher), str(ticks), *same, str(next(_numbers))]
    marker = MEETING + "-".join("".join(filter(str.isalnum, part)) for part in parts)
    return Launch(marker, began, int(os.environ["LOCAL_RANK"]) == 0)


class Seat:
    """A rank's place in the common folder, kept until it leaves or its process ends.

    Args:
        marker: the file of the launch.
        leads: whether it is the one that speaks.
    """

    def __init__(self, marker: Path, *, leads: bool) -> None:
        self.leads = leads
        # To be written to: NFS locks for one alone no file that was opened to be read.
        self._file: int | None = os.open(marker, os.O_RDWR)
        if sys.platform != "win32":
            with contextlib.suppress(OSError):  # some file systems know no locks: nobody is waited for, then
                fcntl.flock(self._file, fcntl.LOCK_SH)

    def leave(self, _folder: Path | None = None) -> None:
        """Say that this rank has written all that it will write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def leave_in_order(self, seconds: float) -> None:
        """Leave; the one that leads does so as the last, where the others leave within so many seconds."""
        end = time.monotonic() + seconds
        while self._file is not None and self.leads and sys.platform != "win32":
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < end:
                    time.sleep(0.05)
                    continue
            except OSError:
                pass
            break
        self.leave()


def take_seat(folder: Path, launched: Launch, *, force: bool = False) -> Seat:
    """Make `folder` ready for the run of a launch, or join the rank that has.

    Raises:
        OutputExistsError: it holds something that is not of this launch; with `force` an earlier run is replaced.
        OutputNotWritableError: it can't be created or written.
    """
    with contextlib.suppress(OSError):  # prepare_folder tells it
        folder.mkdir(parents=True, exist_ok=True)
    marker = folder / launched.marker
    with _alone(folder):
        if not marker.is_file():
            prepare_folder(folder, force=force)
            marker.touch()
        return Seat(marker, leads=launched.leads)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other ranks out of the folder meanwhile."""
    if sys.platform == "win32" or not folder.is_dir():
        yield
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _start_of(pid: int) -> tuple[int, str]:
    """Return when a process was started: in the kernel's own count, and as a name's part; (0, "") if unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines() if "btime" in line)
        ticks = int(fields[19])
        began = int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration, AttributeError):
        return 0, ""
    return ticks, time.strftime("%Y%m%d-%H%M%S", time.localtime(began))
