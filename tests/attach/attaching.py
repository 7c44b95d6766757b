"""A training in a process of its own, and the command that attaches to it."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampdoctor.trace.run import open_run
from tests.e2e.command import AMPDOCTOR, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run

TRAIN = Path(__file__).parent / "scripts" / "train.py"
TIMEOUT_S = 120.0


class Training:
    """`train.py MODE` in `folder`."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        self.folder = folder
        self.out, self.err = folder / "stdout", folder / "stderr"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(TRAIN), *arguments], cwd=folder, stdout=out, stderr=err,
                env=environment(OMP_NUM_THREADS="1", **variables),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, text: str) -> None:
        """Wait until the training has printed `text`."""
        wait_until(lambda: text in self.out.read_text(), self.process)

    def let(self, *names: str) -> None:
        """Let the training go on: from the tenth step on with `go` to the fortieth, from there with `end`."""
        for name in (*names, *(("more",) if "go" in names else ())):
            (self.folder / name).touch()

    def printed(self) -> str:
        """Return what the training printed, once it is over."""
        assert self.process.wait(TIMEOUT_S) == 0, self.err.read_text()
        assert self.err.read_text() == ""
        return self.out.read_text()


class Command:
    """`ampdoctor attach`, with a folder for its run."""

    def __init__(self, training: Training, *arguments: object, **variables: str) -> None:
        self.folder = training.folder / "run"
        self._err = training.folder / "attach.err"
        with self._err.open("w") as err:
            self.process = subprocess.Popen(
                [*AMPDOCTOR, "attach", str(training.pid), "--out", str(self.folder), *map(str, arguments)],
                stdout=subprocess.DEVNULL, stderr=err, env=environment(**variables),
            )  # fmt: skip

    def wait_for(self, text: str) -> None:
        """Wait until the command has said `text`."""
        wait_until(lambda: text in self.said, self.process)

    @property
    def said(self) -> str:
        return self._err.read_text()

    def ended(self, code: int = 0) -> str:
        """Return what it said, once it is over."""
        assert self.process.wait(TIMEOUT_S) == code, self.said
        return self.said

    @property
    def run(self) -> Run:
        """What it recorded."""
        return open_run(self.folder)


@contextmanager
def training(folder: Path, *arguments: str, **variables: str) -> Iterator[Training]:
    """A training that has done its first steps and waits."""
    folder.mkdir()
    started = Training(folder, *arguments, **variables)
    try:
        started.wait_for("waiting for go")
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def undisturbed(folder: Path, *arguments: str) -> str:
    """Return what the same training prints where nobody attaches."""
    with training(folder, *arguments) as started:
        started.let("go", "end")
        return started.printed()


def wait_until(true: Any, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        assert process.poll() is None or true(), f"ended with {process.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.02)
