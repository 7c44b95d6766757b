"""A child process that must behave as if the person had started it: signals go to it, its end becomes our end."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

_SHARED = ("SIGINT", "SIGQUIT", "SIGHUP")
"""Sent by a terminal to the whole foreground group, so that the child has them already; by others to us alone."""

_PASSED_ON = ("SIGTERM", "SIGUSR1", "SIGUSR2")
"""Sent to one process: the one that was started, which is us. Batch systems announce their time limit with these."""


def supervise(start: Callable[[], subprocess.Popen[bytes]]) -> int:
    """Start a child and wait for it; return its return code, negative for a signal."""
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []
    shared = {getattr(signal, name, None) for name in _SHARED}

    def pass_on(number: int, _frame: object) -> None:
        if number in shared and _in_foreground():
            return  # the child has it too and decides
        if children:
            children[0].send_signal(number)
        else:
            early.append(number)

    with _handlers(pass_on):
        child = start()
        children.append(child)
        for number in early:
            child.send_signal(number)
        return child.wait()


@contextlib.contextmanager
def _handlers(pass_on: Callable[[int, object], None]) -> Iterator[None]:
    """Install our handlers before the child is there, so that no signal can end us first.

    They are functions and not SIG_IGN, which a child would inherit; and where SIG_IGN is what we inherited (nohup), it
    stays, as it would under python.
    """
    before = {}
    for name in (*_SHARED, *_PASSED_ON):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether we are in the group to which a terminal sends its signals."""
    if os.name != "posix":
        return True
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def end_like(returncode: int) -> int:
    """Return the exit code of a child; where a signal ended it, die of the same, so that a shell sees no difference."""
    if returncode >= 0 or os.name != "posix":
        return returncode
    number = -returncode
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has dumped core, if anybody does
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError, ValueError):
        os.kill(os.getpid(), number)
    return 128 + number
