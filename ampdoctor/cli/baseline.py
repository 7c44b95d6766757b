"""`ampdoctor baseline`: what good runs come to, as a file to commit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ampdoctor.analysis.wording import counted
from ampdoctor.cli.baselines import ONE_RUN, baseline_of_good, judged, write_baseline
from ampdoctor.config import load_config
from ampdoctor.report.terminal import console, tell


def baseline(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of good runs: several show how much is noise.", metavar="RUN...")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to write, to be committed.")],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE where it exists.")] = False,
) -> None:
    """Write what good runs come to, for `check`."""
    config = load_config(Path())
    made = baseline_of_good([judged(run, config) for run in runs])
    write_baseline(made, out, force=force)
    to = console(stderr=True)
    tell(f"{out} has been written: {counted(len(made.bands), 'number')} of {counted(made.runs, 'run')}", to)
    for known in made.findings.values():
        tell(f"{known.name} will count as known: {known.summary}", to, style="bold yellow")
    if made.runs == 1:
        tell(ONE_RUN, to)
