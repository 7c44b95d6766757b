"""`ampdoctor speed`: where the time of a step goes, and what other precisions would take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampdoctor.analysis.speed import speeds, timed
from ampdoctor.cli.answers import AnswerFormat
from ampdoctor.errors import AmpDoctorError
from ampdoctor.report import speed as report
from ampdoctor.report.terminal import console, show
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from collections.abc import Iterable


def speed(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    step: Annotated[
        int | None, typer.Option(help="A step whose operations were timed; by default the last one.")
    ] = None,
    answer_format: Annotated[
        AnswerFormat, typer.Option("--format", help="How to print the answer.")
    ] = AnswerFormat.TEXT,
) -> None:
    """Say where the time of a step goes."""
    recorded = open_run(run)
    steps = {found.step: found for found in speeds(recorded)}
    if not steps:
        raise AmpDoctorError(
            "this run has timed no operations",
            hint="record more than four steps, without --no-prove: of one process, whose model is not compiled",
        )
    if step is not None and step not in steps:
        raise AmpDoctorError(f"the operations of step {step} were not timed", hint=f"those of {_list(steps)} were")
    chosen, to = steps[max(steps) if step is None else step], console()
    if answer_format is AnswerFormat.JSON:
        to.file.write(report.document(chosen, timed(recorded), str(run)))
    else:
        declined = next((row.declined for row in recorded.paces if row.declined), None)
        show(report.page(chosen, timed(recorded), str(run), to.width, declined), to)


def _list(steps: Iterable[int]) -> str:
    return ", ".join(f"step {step}" for step in sorted(steps)[:8])
