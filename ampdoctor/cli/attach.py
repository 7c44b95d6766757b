"""`ampdoctor attach`: records a training that is already running, says what is wrong, and leaves it as it was."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampdoctor.attach.entrance import enter
from ampdoctor.attach.process import process
from ampdoctor.attach.ranks import check_torch, ranks_of
from ampdoctor.attach.visit import Visit
from ampdoctor.cli.options import Budget, Every, Force, Out, Prove
from ampdoctor.config import load_config
from ampdoctor.live import BESIDE_THE_TRAINING, LiveFindings, Watcher
from ampdoctor.record.launch import Recording, lost
from ampdoctor.report.terminal import console, show_finding, tell
from ampdoctor.session import conclude, discard, new_run_folder
from ampdoctor.trace.info import FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ampdoctor.attach.process import Process

_LOOK_S = 0.2
_PATIENCE_S = 15.0
"""Most steps are over sooner."""

_WHAT_A_STEP_IS = "One ends with optimizer.step() or scaler.update(), or with backward() where there is no optimizer"


def attach(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The training process.")],
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Detach after N steps; by default on Ctrl-C.")
    ] = None,
    out: Out = None,
    every: Every = None,
    budget: Budget = 0.03,
    prove: Prove = None,
    all_ranks: Annotated[
        bool, typer.Option("--all-ranks", help="Record all ranks of the training on this machine.")
    ] = False,
    force: Force = False,
) -> int:
    """Record a training that is running already.

    The process goes on as if nobody had looked: its numbers stay the same, and everything is taken off it at the end.
    """
    config = load_config(Path())
    target = process(pid)
    targets = ranks_of(target) if all_ranks else [target]
    for one in targets:
        check_torch(one)
    to = console(stderr=True)
    folder = new_run_folder(f"attach-{pid}", out, force=force)
    recording = Recording(out=folder, every=every, budget=budget, prove=prove)
    with contextlib.ExitStack() as leaving:
        leaving.callback(lambda: discard(folder))
        visits = [_begin(one, replace(recording, lead=one is targets[0]), steps, to, leaving) for one in targets]
        tell(f"attached to {', '.join(v.target.title for v in visits)}; recording to {folder}", to, style="dim")
        live = LiveFindings(Watcher(folder, config), lambda finding: show_finding(finding, to), BESIDE_THE_TRAINING)
        live.start()
        leaving.callback(live.stop)
        _follow(visits, to)
    for error in filter(None, (visit.error for visit in visits)):
        raise error
    failure = next((visit.failure for visit in visits if visit.failure is not None), None)
    if not (folder / FILE_NAME).is_file():
        if failure is None:
            why = "it ended first" if target.ended() else f"no step ended meanwhile. {_WHAT_A_STEP_IS}"
            tell(f"nothing was recorded: {why}", to)
            return 0
        raise failure
    if visits[0].lost():
        lost(folder)
    conclude(folder, to)
    if failure is not None:
        raise failure
    return 0


def _begin(
    target: Process, recording: Recording, steps: int | None, to: Console, leaving: contextlib.ExitStack
) -> Visit:
    visit = Visit(target, enter(target, lambda line: tell(line, to, style="dim")))
    leaving.callback(visit.close)
    visit.begin(recording, steps)
    return visit


def _follow(visits: Sequence[Visit], to: Console) -> None:
    """Wait until all recordings are over; the first Ctrl-C ends them, the second one leaves at once."""
    try:
        _await_first_step(visits, to)
        _wait(visits)
    except KeyboardInterrupt:
        tell("detaching after the step at hand; Ctrl-C again to leave at once", to, style="dim")
        for visit in visits:
            visit.end()
        with contextlib.suppress(KeyboardInterrupt):
            _wait(visits)


def _await_first_step(visits: Sequence[Visit], to: Console) -> None:
    """Wait until one of them records, and say so where that takes long."""
    until_s = time.monotonic() + _PATIENCE_S
    while not any(visit.recording.is_set() or visit.wait(0.0) for visit in visits):
        time.sleep(_LOOK_S)
        if time.monotonic() > until_s:
            until_s = math.inf
            tell("no step has ended so far: an evaluation, or the training waits; Ctrl-C to leave", to, style="dim")


def _wait(visits: Sequence[Visit]) -> None:
    for visit in visits:
        while not visit.wait(_LOOK_S):
            pass  # in short waits, so that Ctrl-C comes through
