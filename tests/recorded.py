"""Run folders for tests that need one on disk but no training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.schema import StepRow
from ampdoctor.trace.writer import TraceWriter, prepare_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def step_rows(losses: Sequence[float]) -> list[StepRow]:
    """Return applied, unexamined steps with these losses."""
    return [
        StepRow(step=step, time=float(step), wall_ms=10.0, micro_batches=1, loss=loss, applied=True, examined=False)
        for step, loss in enumerate(losses)
    ]


def write_run(folder: Path, losses: Sequence[float] = (3.0, 2.0, 1.0)) -> Path:
    """Write a complete run of steps with these losses, and nothing else, into `folder`."""
    prepare_folder(folder)
    writer = TraceWriter(folder)
    write_info(folder, RunInfo(status="complete", exit_code=0))
    writer.append("steps", step_rows(losses))
    writer.close()
    return folder
