"""`ampdoctor diagnose`: what is wrong with a recorded run."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampdoctor import engine
from ampdoctor.config import load_config
from ampdoctor.finding import Severity
from ampdoctor.report import find_format, known_formats
from ampdoctor.report.terminal import console, show_diagnosis
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from ampdoctor.engine import Diagnosis


class FailOn(str, Enum):
    """From which severity on a finding makes the command fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"


def diagnose(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    report_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(known_formats())}.")
    ] = "text",
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit with 1 where a finding is at least this severe.")
    ] = FailOn.WARNING,
) -> int:
    """Say what is wrong with a recorded run."""
    render = find_format(report_format)
    diagnosis = engine.diagnose(open_run(run), load_config(Path()))
    to = console()
    if report_format == "text":
        show_diagnosis(diagnosis, to)
    else:
        to.file.write(render(diagnosis))
    return exit_code(diagnosis, fail_on)


def exit_code(diagnosis: Diagnosis, fail_on: FailOn) -> int:
    """Return 1 for a finding at or above `fail_on`, else 3 where a rule failed (that is not clean), else 0."""
    if fail_on is FailOn.NEVER:
        return 0
    limit = Severity(fail_on.value).rank
    if any(finding.severity.rank <= limit for finding in diagnosis.findings):
        return 1
    return 3 if diagnosis.crashed else 0
