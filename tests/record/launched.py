"""Processes that train: under the recorder, and as plain python runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor.record.launch import RECORDING_VARIABLE, Recording, finish, python_command, start
from ampdoctor.trace.run import Run, open_run
from ampdoctor.trace.writer import prepare_folder

if TYPE_CHECKING:
    import pytest

SCRIPTS = Path(__file__).parent / "scripts"
REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Ended:
    """How a process ended and what it wrote."""

    code: int
    out: str
    err: str


class Launched:
    """Starts a Python command line twice, under the recorder and without."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv("PYTHONHASHSEED", "7")
        monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.delenv(RECORDING_VARIABLE, raising=False)
        self._monkeypatch = monkeypatch

    def record(self, *arguments: str, strict: bool = True, every: int | None = 1) -> subprocess.Popen[bytes]:
        """Start `arguments` under the recorder; what it writes goes to files beside the run."""
        prepare_folder(self.folder)
        recording = Recording(self.folder, every=every, strict=strict)
        original = subprocess.Popen

        def with_files(command: list[str], **settings: object) -> subprocess.Popen[bytes]:
            with self._file("out").open("wb") as out, self._file("err").open("wb") as err:
                return original(command, stdout=out, stderr=err, **settings)  # type: ignore[call-overload, no-any-return]

        with self._monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", with_files)
            return start(python_command(arguments), recording)

    def ended(self, process: subprocess.Popen[bytes]) -> Ended:
        """Wait for the end of what `record` started, and stamp it into the run."""
        code = process.wait(TIMEOUT_S)
        finish(self.folder, code)
        return Ended(code, self._file("out").read_text(), self._file("err").read_text())

    def both(self, *arguments: str) -> tuple[Ended, Ended]:
        """Run `arguments` as plain python and, at the same time, under the recorder."""
        plain = subprocess.Popen(python_command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        recorded = self.ended(self.record(*arguments))
        out, err = plain.communicate(timeout=TIMEOUT_S)
        return Ended(plain.returncode, out, err), recorded

    @property
    def run(self) -> Run:
        """The recorded run."""
        return open_run(self.folder)

    def _file(self, name: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{name}")


def environment_of_a_child() -> dict[str, str]:
    """Return our environment for a process that must not be recorded."""
    return {k: v for k, v in os.environ.items() if k != RECORDING_VARIABLE} | {
        "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def python() -> str:
    """Return this interpreter."""
    return sys.executable
