"""The GPU that a run trained on, as its driver saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.trace.rows import as_rows
from ampdoctor.trace.schema import GpuRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.trace.run import Run

_LOOKS = 30_000
"""Of more looks at a GPU, those at even distances are judged: a run of weeks has millions."""


@once_per_run
def looks(run: Run) -> Sequence[GpuRow]:
    """Return the looks at the GPU that the training takes its memory from, in order; none where it isn't known.

    It is torch's current device, or the only one that there is.
    """
    table = run.table("gpu")
    current = table.filter(pc.fill_null(table["current"], False))
    if current.num_rows == 0 and len(table["uuid"].unique()) == 1:
        current = table
    if current.num_rows > _LOOKS:
        current = current.take(list(range(0, current.num_rows, -(-current.num_rows // _LOOKS))))
    return as_rows(current, GpuRow)


def with_reason(run: Run, absent: Sequence[str]) -> list[str]:
    """Return what a rule lacks, with the recorder's own words for why nothing is known of a GPU."""
    said = run.info.gpu_telemetry
    why = f" ({said})" if said else ""
    return [f"{need}{why}" if need.partition(".")[0] == "gpu" else need for need in absent]
