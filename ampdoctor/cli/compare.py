"""`ampdoctor compare`: what changed between two runs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ampdoctor.cli.baselines import judged
from ampdoctor.config import load_config
from ampdoctor.gate.difference import difference_of
from ampdoctor.report import difference as report
from ampdoctor.report.terminal import console, show


class ComparisonFormat(str, Enum):
    """How the difference is printed."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def compare(
    before: Annotated[Path, typer.Argument(help="Folder of the first run.", metavar="RUN_A")],
    now: Annotated[Path, typer.Argument(help="Folder of the second run.", metavar="RUN_B")],
    answer_format: Annotated[
        ComparisonFormat, typer.Option("--format", help="How to print the difference.")
    ] = ComparisonFormat.TEXT,
) -> None:
    """Say what changed between two runs, worst first."""
    config = load_config(Path())
    found = difference_of(judged(before, config), judged(now, config))
    to = console()
    if answer_format is ComparisonFormat.JSON:
        to.file.write(report.document(found))
    elif answer_format is ComparisonFormat.MARKDOWN:
        to.file.write(report.markdown(found))
    else:
        show(report.page(found, to.width), to)
