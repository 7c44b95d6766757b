"""run.json: what is known of a run as a whole."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ampdoctor.errors import RunNotFoundError, SchemaVersionError, TraceCorruptError
from ampdoctor.trace.schema import OLDEST_READABLE, VERSION

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = "run.json"
STATUSES = ("running", "complete", "degraded", "crashed")


@dataclass(frozen=True)
class RunInfo:
    """The contents of run.json.

    Attributes:
        schema_version: version of the tables beside it.
        status: running, complete, degraded (the recorder gave up, training went on) or crashed (training did not
            end by itself).
        started: seconds since the epoch.
        ended: likewise; None while running or when the process was killed.
        command: the command line of the training.
        cwd: its working directory.
        pid: its process.
        host: name of the machine.
        exit_code: of the training process, negative for a signal; None where it is not known.
        exception: the exception that ended the training, `Type: message`.
        degraded: why the recorder gave up.
        git_commit: commit of the working directory, where it is one.
        world_size: processes that train together.
        device: device of the parameters (`cuda: NVIDIA H100`, `cpu`).
        versions: of ampdoctor, torch, python, numpy, pyarrow, cuda.
        precision: global precision settings of torch (TF32, reduced-precision reductions).
        recording: the recorder's own settings.
        gpu_telemetry: how the table gpu came about: `sampled`, or why there is nothing in it, or nothing any more; None
            where the training used no CUDA.
    """

    schema_version: int = VERSION
    status: str = "running"
    started: float = 0.0
    ended: float | None = None
    command: tuple[str, ...] = ()
    cwd: str = ""
    pid: int = 0
    host: str = ""
    exit_code: int | None = None
    exception: str | None = None
    degraded: str | None = None
    git_commit: str | None = None
    world_size: int = 1
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    precision: dict[str, Any] = field(default_factory=dict)
    recording: dict[str, Any] = field(default_factory=dict)
    gpu_telemetry: str | None = None


def write_info(folder: Path, info: RunInfo) -> None:
    """Write run.json in one atomic step, so that a reader never sees half of it."""
    scratch = folder / f".{FILE_NAME}.{os.getpid()}"
    try:
        scratch.write_text(json.dumps(asdict(info), indent=2) + "\n", encoding="utf-8")
        scratch.replace(folder / FILE_NAME)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def update_info(folder: Path, **changes: Any) -> RunInfo:
    """Rewrite run.json with `changes` and return the result."""
    info = replace(read_info(folder), **changes)
    write_info(folder, info)
    return info


def read_info(folder: Path) -> RunInfo:
    """Read run.json of `folder`.

    Raises:
        RunNotFoundError: no such folder, or not one that ampdoctor wrote.
        TraceCorruptError: run.json is not what it should be.
        SchemaVersionError: written by a version that is too new or too old.
    """
    path = folder / FILE_NAME
    try:
        _check_folder(folder)
    except OSError as error:
        raise RunNotFoundError(
            f"{folder} is not readable: {error.strerror or error}", hint="check its permissions"
        ) from None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        version = int(raw["schema_version"])
        _check_version(version, path)
        known = {f.name for f in fields(RunInfo)}
        values = {key: value for key, value in raw.items() if key in known}
        values["command"] = tuple(values.get("command", ()))
        _check_types(values)
    except KeyError:
        reason = "it does not say which version of the schema it has"
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError, OSError) as error:
        reason = str(error)
    else:
        return RunInfo(**values)
    raise TraceCorruptError(
        f"{path} is not readable: {reason}",
        hint="if another program wrote over it, take it from a copy of the run; else record the run again",
    )


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        what = "is a file, not a run folder" if folder.exists() else "does not exist"
        raise RunNotFoundError(f"{folder} {what}", hint="give the folder that `ampdoctor run` named")
    if not (folder / FILE_NAME).is_file():
        raise RunNotFoundError(
            f"{folder} is not a run: it has no {FILE_NAME}",
            hint="give the folder that `ampdoctor run` named; runs are kept in ./ampdoctor-runs",
        )


_NONE = type(None)
_KINDS: dict[str, type | tuple[type, ...]] = {
    "status": str, "started": (int, float), "ended": (int, float, _NONE), "command": tuple, "cwd": str, "pid": int,
    "host": str, "exit_code": (int, _NONE), "exception": (str, _NONE), "degraded": (str, _NONE),
    "git_commit": (str, _NONE), "world_size": int, "device": str, "versions": dict, "precision": dict,
    "recording": dict, "gpu_telemetry": (str, _NONE),
}  # fmt: skip
"""What JSON gives for each field of RunInfo."""


def _check_types(values: dict[str, Any]) -> None:
    for name, kinds in _KINDS.items():
        if name in values and not isinstance(values[name], kinds):
            raise TypeError(f"{name} is {values[name]!r}")
    times = [values.get(name) for name in ("started", "ended")]
    if not all(time is None or math.isfinite(time) for time in times):
        raise ValueError(f"it started at {times[0]!r} and ended at {times[1]!r}")
    if values.get("status", "running") not in STATUSES:
        raise ValueError(f"status is {values['status']!r}")


def _check_version(version: int, path: Path) -> None:
    if version > VERSION:
        raise SchemaVersionError(
            f"{path} has schema version {version}; this ampdoctor reads up to {VERSION}",
            hint="upgrade ampdoctor: pip install -U ampdoctor",
        )
    if version < OLDEST_READABLE:
        raise SchemaVersionError(
            f"{path} has schema version {version}; this ampdoctor reads from {OLDEST_READABLE}",
            hint="record the run again, or read it with the release that wrote it",
        )
