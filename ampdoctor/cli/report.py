"""`ampdoctor report`: a run as one HTML file to send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ampdoctor.analysis.wording import bytes_text
from ampdoctor.cli.view import part
from ampdoctor.config import load_config
from ampdoctor.report.terminal import console, tell


def report(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="File to write; by default RUN-report.html, here."),
    ] = None,
    lang: Annotated[str, typer.Option(help="Language: en or zh.")] = "en",
    force: Annotated[bool, typer.Option("--force", help="Replace FILE where it exists.")] = False,
) -> None:
    """Write a run into one HTML file to send.

    The file needs no network and no other file.
    """
    to = out or Path(f"{run.resolve().name}-report.html")
    written = part("report").write_report(run, to, lang=lang, force=force, config=load_config(Path()))
    tell(f"{written.path} has been written: {bytes_text(written.bytes)}", console(stderr=True))
