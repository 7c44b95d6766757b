"""The training dies with the process that started it, and what the training starts does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ampdoctor.record import tether
from ampdoctor.record.launch import BOOTSTRAP, RECORDING_VARIABLE, Recording
from ampdoctor.record.tether import LAUNCHER_VARIABLE, name_launcher
from tests.record.launched import environment_of_a_child, python

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")

STARTED = "print(os.getpid(), flush=True); time.sleep(60)"
LAUNCHES = """\
import os, subprocess, sys, time
from pathlib import Path
from ampdoctor.record.launch import Recording, start
child = start([sys.executable, "-c", "import os, subprocess, sys, time; " + sys.argv[1]], Recording(Path("run")))
{then}
"""


def _ended(pid: int, within_s: float = 20.0) -> bool:
    """Whether the process ends in time; one that nobody waits for any more counts as ended."""
    deadline = time.monotonic() + within_s
    while not tether._gone(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _launch(folder: Path, training: str, then: str = "child.wait()") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python(), "-c", LAUNCHES.format(then=then), training],
        cwd=folder, env=environment_of_a_child(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _printed(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_training_dies_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    with _launch(tmp_path, STARTED) as launcher:
        training = int(_printed(launcher))
        assert not tether._gone(training)
        launcher.kill()
        assert launcher.wait() == -signal.SIGKILL
        assert _ended(training)


def test_a_launcher_that_died_first_is_noticed(tmp_path: Path) -> None:
    # It is gone before the interpreter of the training is up, and nobody has waited for it yet.
    with _launch(tmp_path, STARTED, "print(child.pid, flush=True); os.kill(os.getpid(), 9)") as launcher:
        assert _ended(int(_printed(launcher)))


def test_what_the_training_starts_outlives_it_as_under_python(tmp_path: Path) -> None:
    grandchild = "subprocess.Popen([sys.executable, '-c', 'import os, time; " + STARTED + "'])"
    with _launch(tmp_path, grandchild) as launcher:
        found = int(_printed(launcher))
        assert launcher.wait(20.0) == 0
        try:
            assert not _ended(found, within_s=0.5)
        finally:
            os.kill(found, signal.SIGKILL)


def test_a_process_between_the_two_is_left_alone(tmp_path: Path) -> None:
    environment = environment_of_a_child()
    environment["PYTHONPATH"] = f"{BOOTSTRAP}:{environment['PYTHONPATH']}"
    environment[RECORDING_VARIABLE] = Recording(tmp_path / "run").to_environment()
    environment[LAUNCHER_VARIABLE] = str(os.getppid())
    shown = subprocess.run(
        [python(), "-c", f"import os; print(os.environ.get({LAUNCHER_VARIABLE!r}))"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (shown.stdout, shown.stderr) == ("None\n", "")


def test_a_thread_that_ends_must_not_take_the_training_along() -> None:
    named: dict[str, str] = {}
    thread = threading.Thread(target=name_launcher, args=(named,))
    thread.start()
    thread.join()
    assert named == {}
    name_launcher(named)
    assert named == {LAUNCHER_VARIABLE: str(os.getpid())}
