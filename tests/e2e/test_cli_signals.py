"""Signals to `ampdoctor run`: from a terminal, from a batch system, from whoever knows its process."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.command import AMPDOCTOR, TIMEOUT_S, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = """\
import signal, sys, time
{setup}
open("started", "w").close()
time.sleep(60)
"""


class _Session:
    """`ampdoctor run train.py` in a session of its own, with the script waiting to be ended."""

    def __init__(self, folder: Path, setup: str = "", terminal: int | None = None) -> None:
        (folder / "train.py").write_text(WAIT.format(setup=setup), encoding="utf-8")
        self.process = subprocess.Popen(
            [*AMPDOCTOR, "run", "--out", "here", "train.py"], cwd=folder, env=environment(),
            stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=_own_terminal if terminal is not None else None,  # noqa: PLW1509 - no threads here
        )  # fmt: skip
        deadline = time.monotonic() + TIMEOUT_S
        while not (folder / "started").exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out, err


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _prints_and_exits(number: signal.Signals, code: int) -> str:
    return f"signal.signal({int(number)}, lambda *_: (print('saved'), sys.exit({code})))"


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Our end of a terminal, and the other one."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_ctrl_c_reaches_the_script_once_and_its_diagnosis_follows(tmp_path: Path, terminal: tuple[int, int]) -> None:
    session = _Session(tmp_path, terminal=terminal[1])
    os.write(terminal[0], b"\x03")
    code, _, err = session.end()
    assert code == -signal.SIGINT
    assert err.count("KeyboardInterrupt") == 1
    assert err.splitlines()[-1].startswith("ampdoctor: nothing was recorded")


def test_a_script_that_handles_ctrl_c_goes_on(tmp_path: Path, terminal: tuple[int, int]) -> None:
    session = _Session(tmp_path, _prints_and_exits(signal.SIGINT, 4), terminal[1])
    os.write(terminal[0], b"\x03")
    code, out, _ = session.end()
    assert (code, out) == (4, "saved\n")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
)
def test_what_is_sent_to_us_alone_reaches_the_script(tmp_path: Path, number: signal.Signals) -> None:
    session = _Session(tmp_path, _prints_and_exits(number, 9))
    session.process.send_signal(number)
    code, out, err = session.end()
    assert (code, out) == (9, "saved\n")
    assert "Traceback" not in err


def test_a_script_without_a_handler_dies_of_the_signal(tmp_path: Path) -> None:
    session = _Session(tmp_path)
    session.process.terminate()
    assert session.end()[0] == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_a_script_does_not_outlive_us_when_we_are_killed(tmp_path: Path) -> None:
    session = _Session(tmp_path, "import os; print(os.getpid(), flush=True)")
    assert session.process.stdout is not None
    script = int(session.process.stdout.readline())
    session.process.kill()
    session.process.wait(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while not _ended(script):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    session.end()


def _ended(pid: int) -> bool:
    """Whether a process has ended, be it that its new parent has not noticed yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
