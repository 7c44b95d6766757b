"""Start a training script under the recorder without changing it: the parent's side, which never imports torch.

The script runs in a process of its own, as plain `python` would run it, so that `__main__`, tracebacks, exit codes and
signals are the real ones. Recording is switched on inside it by a `sitecustomize` on its path (see `bootstrap`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.tether import name_launcher

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDING_VARIABLE = "AMPDOCTOR_RECORDING"
"""Environment variable that carries the settings to the training process."""

BOOTSTRAP = Path(__file__).parent / "bootstrap"


@dataclass(frozen=True)
class Recording:
    """Settings of a recording.

    Attributes:
        out: run folder, prepared by `trace.writer.prepare_folder`.
        every: examine each `every`-th step; None for the default schedule.
        budget: largest share of wall time for examinations under the default schedule.
        sample_above: draw a sample of tensors on the CPU with more elements than that; None to count all.
        prove: second opinions on every examined step; False for none, None for those that the recorder deems worth it.
        strict: raise errors of the recorder into the training, for tests.
        lead: whether it is the one that writes run.json; None where rank 0 does.
    """

    out: Path
    every: int | None = None
    budget: float = 0.03
    sample_above: int | None = None
    prove: bool | None = None
    strict: bool = False
    lead: bool | None = None

    def settings(self) -> dict[str, Any]:
        """Return the settings that a Recorder takes by the same names."""
        return {k: v for k, v in asdict(self).items() if k not in {"out", "strict"}}

    def to_environment(self) -> str:
        """Return the settings as one string."""
        return json.dumps({**asdict(self), "out": str(self.out.resolve())})

    @classmethod
    def from_environment(cls) -> Recording | None:
        """Return the settings handed to this process, None where it was not launched for recording."""
        text = os.environ.get(RECORDING_VARIABLE)
        if not text:
            return None
        values = json.loads(text)
        return cls(**{**values, "out": Path(values["out"])})


def start(command: Sequence[str], recording: Recording) -> subprocess.Popen[bytes]:
    """Start `command`, a Python command line, with recording on; standard streams are inherited.

    Where this process is killed, so is the training (on Linux, started from the main thread).

    Raises:
        AmpDoctorError: the command can't be started.
    """
    environment = dict(os.environ)
    path = [str(BOOTSTRAP), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    environment[RECORDING_VARIABLE] = recording.to_environment()
    name_launcher(environment)
    try:
        return subprocess.Popen(list(command), env=environment)
    except OSError as error:
        raise AmpDoctorError(f"cannot start {command[0]}: {error.strerror or error}") from None


def python_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs `arguments` with this interpreter."""
    return [sys.executable, *arguments]


def lost(folder: Path) -> None:
    """Stamp into run.json that a process that was no child of ours has ended, where it could not do so itself."""
    from ampdoctor.trace.info import read_info, update_info

    with suppress(AmpDoctorError, OSError):
        if read_info(folder).status == "running":
            update_info(folder, status="crashed")


def finish(folder: Path, returncode: int) -> None:
    """Stamp how the training process ended into run.json, once it is gone.

    A process that was killed could not do so itself; one that ended by itself is given its exit code.
    """
    # Not above: the training process imports this module before the user's first line, and pyarrow would come along.
    from ampdoctor.trace.info import read_info, update_info

    try:
        info = read_info(folder)
    except AmpDoctorError:
        return
    status = info.status
    if returncode != 0 and status != "degraded":
        status = "crashed"
    elif status == "running":
        # It ended by os._exit, which skips our last flush.
        status = "complete"
    update_info(folder, exit_code=returncode, status=status)
