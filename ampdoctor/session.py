"""A recording from inside a training script, and what every recording has in common: its folder and its end."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampdoctor.config import load_config
from ampdoctor.engine import Diagnosis, diagnose
from ampdoctor.errors import AmpDoctorError, OutputExistsError
from ampdoctor.live import WITHIN_THE_TRAINING, LiveFindings, Watcher
from ampdoctor.report.layout import Page, joined
from ampdoctor.report.terminal import console, show, show_diagnosis, show_finding, tell
from ampdoctor.sinks.pump import Pump
from ampdoctor.trace.meeting import launch, take_seat
from ampdoctor.trace.run import open_run
from ampdoctor.trace.writer import MEETING, prepare_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ampdoctor.finding import Finding
    from ampdoctor.record.recorder import Recorder
    from ampdoctor.sinks.base import Sink
    from ampdoctor.trace.meeting import Seat

RUNS = Path("ampdoctor-runs")
"""Folder, in the working directory, that holds the runs nobody named a place for."""

OTHERS_S = 5.0
"""A rank that has ended judges the run once the others have ended too, or after so long."""

_STEPS_BY_HAND = (
    "a loop that changes the weights by itself says where a step ends: with ampdoctor.watch(model) as recorder: ... "
    "recorder.step()"
)


def new_run_folder(name: str, out: str | os.PathLike[str] | None = None, *, force: bool = False) -> Path:
    """Make the folder of a new run: `out`, or a fresh one called after `name` and the time.

    Raises:
        OutputExistsError: `out` holds something already; with `force` an earlier run in it is replaced.
        OutputNotWritableError: it can't be created or written.
    """
    if out is not None:
        prepare_folder(Path(out), force=force)
        return Path(out)
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = RUNS / stem, 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = RUNS / f"{stem}-{number}"
            continue
        except OSError:
            pass  # prepare_folder tells it in one line
        prepare_folder(folder)
        return folder


def run_place(name: str, out: str | os.PathLike[str] | None = None, *, force: bool = False) -> tuple[Path, Seat | None]:
    """Make a run folder as `new_run_folder` does, or the one that all ranks of a launch share, with our seat in it.

    Raises:
        OutputExistsError: `out` holds something already; with `force` an earlier run in it is replaced.
        OutputNotWritableError: it can't be created or written.
    """
    launched = launch()
    if launched is None:
        return new_run_folder(name, out, force=force), None
    if out is not None:
        return Path(out), take_seat(Path(out), launched, force=force)
    stem = RUNS / "-".join(filter(None, (name, launched.began or str(os.getppid()))))
    for number in itertools.count(1):
        folder = stem if number == 1 else stem.with_name(f"{stem.name}-{number}")
        with contextlib.suppress(OutputExistsError):
            return folder, take_seat(folder, launched)
    raise AssertionError  # there is always another number


def discard(folder: Path) -> None:
    """Leave no folder behind that was made for a run and stayed empty."""
    if folder.parent == RUNS:
        with contextlib.suppress(OSError):
            for marker in folder.glob(f"{MEETING}*"):
                marker.unlink()
            folder.rmdir()
            RUNS.rmdir()


def conclude(folder: Path, to: Console) -> Diagnosis:
    """Print the diagnosis of the run that has just ended, where it lies and what to type next.

    Raises:
        AmpDoctorError: the run or the settings can't be read.
    """
    run = open_run(folder)
    diagnosis = diagnose(run, load_config(Path()))
    if not run.steps and not diagnosis.findings:
        by_hand = run.table("tensors").num_rows > 0 and not run.info.exception
        hint = _STEPS_BY_HAND if by_hand else ""
        tell(f"no optimizer step was completed, so there is nothing to diagnose ({folder})", to, hint=hint)
        return diagnosis
    to.print()
    show_diagnosis(diagnosis, to)
    to.print()
    page = Page(to.width)
    page.say(joined(f"ampdoctor diagnose {folder}"), label="Again        ", label_style="bold")
    if diagnosis.findings:
        page.say(joined(f"ampdoctor explain {diagnosis.findings[0].name}"), label="Learn more   ", label_style="bold")
    show(page, to)
    return diagnosis


def reason_of(error: Exception) -> str:
    """Return what went wrong, in one line."""
    return error.message if isinstance(error, AmpDoctorError) else f"{type(error).__name__}: {error}"


def watch(  # noqa: PLR0913 - what a user may say, all by keyword
    model: Any = None,
    *,
    optimizer: Any = None,
    scaler: Any = None,
    out: str | os.PathLike[str] | None = None,
    every: int | None = None,
    budget: float = 0.03,
    sample_above: int | None = None,
    prove: bool | None = None,
    force: bool = False,
    report: bool = True,
    sinks: Sequence[Sink] = (),
) -> Recorder:
    """Record the training in this process; use it as a context manager, or call `.start()` and `.stop()`.

    Args:
        model: the model; found by itself where left out.
        optimizer: its optimizer; found by itself where left out.
        scaler: its GradScaler; found by itself where left out.
        out: the run folder; a fresh one in `ampdoctor-runs` where left out.
        every: examine every so many steps; chosen to keep the budget where left out.
        budget: largest share of the training time to spend on examinations.
        sample_above: draw a sample of tensors on the CPU with more elements than that; all are counted where left out.
        prove: give a second opinion (twin steps) on every examined step; False for none at all. Where left out: one
            early, one at each onset of trouble, and more within a hundredth of the time.
        force: replace an earlier run in `out`.
        report: print findings as they appear, and the diagnosis at the end, to stderr.
        sinks: experiment trackers that get the numbers of each step, the findings and the diagnosis
            (`ampdoctor.sinks`); of several ranks, give them to one.

    Raises:
        OutputExistsError: `out` holds something already.
        OutputNotWritableError: the run folder can't be written.
    """
    recorder = import_module("ampdoctor.record.recorder")
    folder, seat = run_place(Path(sys.argv[0] or "python").stem, out, force=force)
    report = report and (seat is None or seat.leads)
    reporting = _Reporting(sinks, seat, printed=report) if report or sinks else None
    recording: Recorder = recorder.Recorder(
        folder,
        model=model,
        optimizer=optimizer,
        scaler=scaler,
        every=every,
        budget=budget,
        sample_above=sample_above,
        prove=prove,
        lead=None if seat is None else seat.leads,
        on_open=reporting.opened if reporting else None,
        on_close=reporting.closed if reporting else seat.leave if seat else None,
    )
    return recording


class _Reporting:
    """What `watch` prints and passes on to sinks. Nothing here may raise into the training."""

    def __init__(self, sinks: Sequence[Sink], seat: Seat | None = None, *, printed: bool) -> None:
        self._sinks = sinks
        self._seat = seat
        self._printed = printed
        self._live: LiveFindings | None = None
        self._pump: Pump | None = None

    def opened(self, folder: Path) -> None:
        try:
            self._pump = Pump(folder, self._sinks, _tell_failure) if self._sinks else None
            watcher = Watcher(folder, load_config(Path()))
            look = self._pump.look if self._pump is not None else None
            self._live = LiveFindings(watcher, self._tell_finding, WITHIN_THE_TRAINING, look)
            self._live.start()
        except Exception as error:  # noqa: BLE001 - never into the training
            _tell_failure("no findings while the run goes on", error)

    def closed(self, folder: Path) -> None:
        diagnosis = None
        try:
            if self._live is not None:
                self._live.stop()
            if self._seat is not None:
                self._seat.leave_in_order(OTHERS_S)
            diagnosis = self._diagnosis(folder)
        except Exception as error:  # noqa: BLE001 - never into the training
            _tell_failure(f"no diagnosis; try `ampdoctor diagnose {folder}`", error)
        if self._pump is not None:
            self._pump.finish(diagnosis)

    def _diagnosis(self, folder: Path) -> Diagnosis:
        if self._printed:
            return conclude(folder, console(stderr=True))
        return diagnose(open_run(folder), load_config(Path()))

    def _tell_finding(self, finding: Finding) -> None:
        if self._printed:
            show_finding(finding, console(stderr=True))
        if self._pump is not None:
            self._pump.finding(finding)


def _tell_failure(what: str, error: Exception) -> None:
    with contextlib.suppress(Exception):  # stderr may be gone: then nobody is left to tell
        tell(f"{what}: {reason_of(error)}", console(stderr=True))
