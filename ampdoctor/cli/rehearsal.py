"""Records a sample run as a person would, with `ampdoctor run`, behind a progress bar."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ampdoctor.config import Config
from ampdoctor.errors import AmpDoctorError, TraceCorruptError
from ampdoctor.live import BESIDE_THE_TRAINING, LiveFindings, Watcher
from ampdoctor.report.terminal import show_finding
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.stream import read_stream
from ampdoctor.trace.writer import table_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.console import Console

_POLL_S = 0.25


def rehearse(recipe: Path, folder: Path, steps: int, to: Console) -> Path:
    """Record `steps` steps of `recipe` into `folder` and return that.

    Raises:
        AmpDoctorError: the recipe failed or recorded nothing; the last line that it printed is shown.
    """
    command = [sys.executable, "-m", "ampdoctor", "run", "--quiet", "--force", "--out", str(folder), str(recipe)]
    shown = f"$ ampdoctor run {recipe.parent.name}/{recipe.name} --steps {steps}"
    to.print(Text(shown, "dim"), soft_wrap=True)
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [*command, "--steps", str(steps)], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            _follow(child, folder, steps, to)
        finally:
            child.wait()
        if child.returncode != 0 or not steps_recorded(folder):
            raise AmpDoctorError(
                f"{recipe} ended with exit code {child.returncode} after "
                f"{steps_recorded(folder)} recorded steps: {_last_line(log)}",
                hint=f"run it by itself to see more: {sys.executable} {recipe}",
                exit_code=3,
            )
    return folder


def steps_recorded(folder: Path) -> int:
    """Return how many steps have reached the disk."""
    path = table_path(folder, "steps")
    try:
        return int(read_stream(path, TABLES["steps"]).table.num_rows)
    except (OSError, TraceCorruptError):
        return 0


def _follow(child: subprocess.Popen[bytes], folder: Path, steps: int, to: Console) -> None:
    watcher = Watcher(folder, Config())
    live = LiveFindings(watcher, lambda finding: show_finding(finding, to), BESIDE_THE_TRAINING)
    with _progress(steps, to) as advance:
        live.start()
        try:
            while child.poll() is None:
                advance(steps_recorded(folder))
                time.sleep(_POLL_S)
        finally:
            live.stop()
        advance(steps_recorded(folder))


@contextmanager
def _progress(steps: int, to: Console) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, and nothing elsewhere."""
    columns = (TextColumn("  step"), BarColumn(40), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=to, transient=True, disable=not to.is_terminal) as progress:
        task = progress.add_task("", total=steps)
        yield lambda done: progress.update(task, completed=done)


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("  hint:")]
    return lines[-1] if lines else "it printed nothing"
