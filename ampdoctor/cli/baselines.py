"""Baselines on disk: read from a file or from a run, written as a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor import engine
from ampdoctor.errors import AmpDoctorError, OutputExistsError, OutputNotWritableError
from ampdoctor.gate.baseline import HINT, Baseline, baseline_of, read_baseline, text_of
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.config import Config
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.trace.run import Run

ONE_RUN = "it is of 1 run: how much its numbers differ from run to run is not known. Give several runs for that"


def judged(path: Path, config: Config) -> tuple[Run, Diagnosis]:
    """Open and diagnose the run in the folder `path`."""
    run = open_run(path)
    return run, engine.diagnose(run, config)


def baseline_at(path: Path, config: Config) -> Baseline:
    """Return the baseline in the file `path`, or that which the run in the folder `path` makes."""
    return baseline_of([judged(path, config)]) if path.is_dir() else read_baseline(path)


def write_baseline(baseline: Baseline, path: Path, *, force: bool) -> None:
    """Write `baseline` to the file `path`.

    Raises:
        OutputExistsError: the file is there, and `force` is not given.
        OutputNotWritableError: it can't be written.
    """
    if path.exists() and not force:
        raise OutputExistsError(f"{path} is there already", hint="add --force to replace it, or choose another with -o")
    write_text(path, text_of(baseline))


def write_text(path: Path, text: str) -> None:
    """Write a file, with its folder; one that is there already is replaced as a whole or not at all.

    Raises:
        OutputNotWritableError: it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            new = path.with_name(f".{path.name}.{os.getpid()}")
            new.write_text(text, encoding="utf-8", errors="replace", newline="\n")
            new.replace(path.resolve())
        else:  # also /dev/stdout, or a pipe
            path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputNotWritableError(f"cannot write {path}: {why}", hint="choose another file with -o") from None


def baseline_of_good(runs: Sequence[tuple[Run, Diagnosis]]) -> Baseline:
    """Return the baseline of good runs.

    Raises:
        AmpDoctorError: nothing was measured in them, so that whatever is compared with them would pass.
    """
    made = baseline_of(runs)
    if made.empty:
        raise AmpDoctorError("nothing was measured in what was to be a baseline", hint=HINT)
    return made
