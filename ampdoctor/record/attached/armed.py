"""An agent that waits in the training, at no cost, so that `ampdoctor attach` needs no debugger to come in."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading

from ampdoctor.record.attached.agent import serve
from ampdoctor.record.attached.door import armed_address, listen, other_end, sweep
from ampdoctor.record.forks import forget_in_children


class _Armed:
    """Listens, in a thread of its own that sleeps in the kernel."""

    def __init__(self) -> None:
        sweep()
        self._address = armed_address(os.getpid())
        self._door = listen(self._address)
        self._process = os.getpid()
        atexit.register(self._leave)
        threading.Thread(target=self._answer, name="ampdoctor-armed", daemon=True).start()
        forget_in_children(self)

    def disown(self) -> None:
        """In a forked child: it has no such thread, and its number is another."""
        self._door.close()

    def _leave(self) -> None:
        if os.getpid() == self._process:
            self._address.unlink(missing_ok=True)

    def _answer(self) -> None:
        with contextlib.suppress(OSError), self._door:  # where nobody answers any more, nobody can knock
            while True:
                visitor, _ = self._door.accept()
                if other_end(visitor)[1] == os.getuid():
                    # Each in a thread of its own: the second is to be told that there is a first.
                    threading.Thread(target=serve, args=[visitor], name="ampdoctor-attached", daemon=True).start()
                else:
                    visitor.close()


_lock = threading.Lock()
_armed: dict[int, _Armed] = {}


def arm() -> None:
    """Let `ampdoctor attach` into this process without a debugger, from now on until it ends.

    A thread waits for it in the kernel; nothing else changes, and torch isn't imported for it. Only processes of the
    same user are let in. Calling it again does nothing. `AMPDOCTOR=arm` in the environment does the same.

    Raises:
        AmpDoctorError: the folder for its socket can't be made.
    """
    with _lock:
        if os.getpid() not in _armed:
            _armed.clear()
            _armed[os.getpid()] = _Armed()
