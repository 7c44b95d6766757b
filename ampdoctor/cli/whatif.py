"""`ampdoctor whatif`: what another number format or loss scale would do to the gradients of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ampdoctor.analysis.advice.whatif import CURVE, measured_points, recorded_step, what_if
from ampdoctor.cli.answers import AnswerFormat
from ampdoctor.errors import AmpDoctorError
from ampdoctor.formats import FORMATS, FP32, find_format
from ampdoctor.report import whatif as report
from ampdoctor.report.terminal import console, show
from ampdoctor.trace.run import open_run

POWER = re.compile(r"\s*2(?:\^|\*\*)\(?([+-]?\d{1,4})\)?\s*")

LARGEST_POWER = 127
"""Loss scales are FP32 numbers."""


def whatif(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    number_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help=f"One of {', '.join(FORMATS)}; by default the run's own half format."),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(metavar="SCALE", help="Loss scale: 2^10, 2**10 or 1024; by default the run's own.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(help="An examined step; by default the last one, if possible with a twin.")
    ] = None,
    site: Annotated[str, typer.Option(metavar="GLOB", help="Only the sites that match, such as 'encoder.*'.")] = "*",
    answer_format: Annotated[
        AnswerFormat, typer.Option("--format", help="How to print the answer.")
    ] = AnswerFormat.TEXT,
    curve: Annotated[bool, typer.Option("--curve", help="Plot the flushed share against the loss scale.")] = False,
) -> None:
    """Predict another number format or loss scale."""
    chosen = find_format(number_format) if number_format is not None else None
    wanted = parse_scale(scale) if scale is not None else None
    if curve and answer_format is AnswerFormat.JSON:
        raise AmpDoctorError("--curve is drawn as text only", hint="ask for single scales with --scale")
    recorded = recorded_step(open_run(run), step)
    answer = what_if(recorded, chosen, wanted, site)
    to = console()
    if answer_format is AnswerFormat.JSON:
        to.file.write(report.document(answer, str(run)))
    elif curve:
        answers = [what_if(recorded, chosen, 2.0**e, site) for e in CURVE]
        points = measured_points(recorded, chosen or recorded.backward.half or FP32, site)
        to.file.write(report.curve(answers, points, to.width, fine=to.is_terminal))
    else:
        show(report.page(answer, str(run), to.width), to)


def parse_scale(text: str) -> float:
    """Return the loss scale that `text` says: `2^10`, `2**10`, `1024`.

    Raises:
        AmpDoctorError: it is no positive number, or too large for a loss scale.
    """
    hint = f"give a number from 2^-{LARGEST_POWER} to 2^{LARGEST_POWER}: 1024, 2^10 or 2**10"
    power = POWER.fullmatch(text)
    try:
        exponent = int(power[1]) if power else 0
        value = 2.0**exponent if power and abs(exponent) <= LARGEST_POWER else float(text)
    except ValueError:
        raise AmpDoctorError(f"{text!r} is no loss scale", hint=hint) from None
    if not 2.0**-LARGEST_POWER <= value <= 2.0**LARGEST_POWER:
        raise AmpDoctorError(f"{text!r} is no loss scale", hint=hint)
    return value
