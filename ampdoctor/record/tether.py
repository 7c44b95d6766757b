"""Makes the training die with the `ampdoctor run` that started it, where that one is killed and can't pass a signal on.

Nobody would be left to stop an orphan, which holds its accelerator. Linux ends it for us, once the training process has
asked for it, before any line of the user's. Elsewhere nothing is done.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

LAUNCHER_VARIABLE = "AMPDOCTOR_LAUNCHER"
"""Environment variable that carries the launcher's process id to the process that it starts, and no further."""

_PR_SET_PDEATHSIG = 1


def name_launcher(environment: MutableMapping[str, str]) -> None:
    """Name this process in the `environment` of the training as the one to die with.

    Linux takes the end of the thread that started a process for that of its parent, so only the main thread does.
    """
    if threading.current_thread() is threading.main_thread():
        environment[LAUNCHER_VARIABLE] = str(os.getpid())


def die_with_launcher() -> None:
    """Ask for SIGKILL when the launcher that the environment names ends. Never raises.

    The name is taken out of the environment: what the training starts in turn lives as long as it would under python.
    """
    launcher = os.environ.pop(LAUNCHER_VARIABLE, "")
    if sys.platform != "linux" or not launcher.isdecimal():
        return
    with contextlib.suppress(Exception):  # whatever keeps us from it, the script comes first
        _die_with(int(launcher))


def _die_with(launcher: int) -> None:
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() == launcher:
        return
    if _gone(launcher):  # it was killed before we could ask
        os.kill(os.getpid(), signal.SIGKILL)
    prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)  # something stands between us and it, and may end before the training does


def _gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has taken notice yet."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return True
    except OSError:
        return False
    return state in {"Z", "X"}
