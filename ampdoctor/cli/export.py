"""`ampdoctor export`: a recorded run to an experiment tracker.

The way of those who cannot write the line `watch(sinks=[...])`. It is a command of its own and no option of `ampdoctor
run`: the tracker's run that a script opens is the script's, in another process, so an option could only open a second
one as well; and here one command does for runs that were killed, recorded by somebody else or before the tracker was
there. It asks for nothing but the run folder, also while the run goes on: then it tells what there is so far.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ampdoctor.config import load_config
from ampdoctor.engine import diagnose
from ampdoctor.errors import AmpDoctorError
from ampdoctor.report.terminal import console, tell
from ampdoctor.session import reason_of
from ampdoctor.sinks import find_sink, known_sinks
from ampdoctor.sinks.pump import Pump
from ampdoctor.trace.run import open_run


def export(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    to: Annotated[
        list[str],
        typer.Option(
            "--to",
            metavar="TRACKER[=WHERE]",
            help=f"One of {', '.join(known_sinks())}; WHERE is a log folder, a project or an experiment. "
            "May be given several times.",
        ),
    ],
) -> None:
    """Send a recorded run to an experiment tracker."""
    recorded = open_run(run)
    diagnosis = diagnose(recorded, load_config(Path()))
    name = run.resolve().name
    sinks = [find_sink(tracker)(where, name) for tracker, _, where in (target.partition("=") for target in to)]
    failures: list[str] = []
    pump = Pump(run, sinks, lambda what, error: failures.append(f"{what}: {reason_of(error)}"))
    pump.finish(diagnosis)
    if failures:
        raise AmpDoctorError("; ".join(failures), hint="what was sent before that is there")
    tell(f"{len(recorded.steps)} steps of {run} sent to {', '.join(to)}", console(stderr=True))
