"""A run as analyses see it, with the tensors of one step and of no other: what the pages on one step need of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ampdoctor.errors import TraceCorruptError
from ampdoctor.trace.parts import joined, spread
from ampdoctor.trace.run import Run
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.stream import read_stream
from ampdoctor.trace.writer import table_path

if TYPE_CHECKING:
    from ampdoctor_dashboard.data.kept import Kept
    from ampdoctor_dashboard.data.opened import OpenedRun

NEAR = 50
"""Steps before and after whose calls are read along: how the loss is scaled shows in several."""

_ONLY_NEAR = {"calls", "scaler", "steps", "timings", "roundings", "accumulators", "memory"}
"""Tables that are long in a long run, and of which one step's neighbourhood is asked for."""

KEPT = 6
"""Steps of a run that are kept."""


def run_of_step(opened: OpenedRun, step: int | None) -> Run:
    """Return the run with the tensors of `step` alone, none where it is None; kept until there is something new."""
    runs: Kept[Run] = opened.kept("runs of steps", KEPT)
    return runs.get(step, lambda: Run(opened.info, lambda name: (_table(opened, name, step), []), opened.folder))


def _table(opened: OpenedRun, name: str, step: int | None) -> pa.Table:
    if name == "tensors":
        return TABLES[name].arrow.empty_table() if step is None else tensors_of(opened, step)
    table = opened.table(name)
    if step is None or name not in _ONLY_NEAR:
        return table
    near = pc.and_(pc.greater_equal(table["step"], step - NEAR), pc.less_equal(table["step"], step + NEAR))
    if name == "scaler":
        near = pc.or_(near, pc.is_in(table["event"], pa.array(["seen", "growth", "backoff"])))
    return table.filter(near)


def tensors_of(opened: OpenedRun, step: int) -> pa.Table:
    """Return all that was recorded of the tensors of `step`, put together where they were spread over ranks."""
    own = _read(opened, opened.rank, step)
    if len(opened.ranks) > 1 and spread(own):
        return joined(own, (_read(opened, rank, step) for rank in opened.ranks if rank != opened.rank)).table
    return own


def _read(opened: OpenedRun, rank: int, step: int) -> pa.Table:
    path, schema = table_path(opened.folder, "tensors", rank), TABLES["tensors"]
    if not path.is_file():
        return schema.arrow.empty_table()
    try:
        table = read_stream(path, schema, lambda _: {step}).table
    except TraceCorruptError:  # that it can't be read is told where the run is judged
        return schema.arrow.empty_table()
    return table.filter(pc.equal(table["step"], step))


def steps_with(opened: OpenedRun, role: str) -> list[int]:
    """Return the steps on which a tensor of `role` was recorded, in order."""
    index = opened.tensors
    wanted = np.array([site.role == role for site in index.sites], bool)
    if not wanted.any():
        return []
    found: list[int] = np.unique(index.step[wanted[index.site]]).tolist()
    return found


def steps_of_table(opened: OpenedRun, name: str) -> list[int]:
    """Return the steps that a table has rows of, in order."""
    found: list[int] = np.unique(opened.table(name)["step"].to_numpy()).tolist()
    return found


def nearest(steps: list[int], wanted: int | None) -> int | None:
    """Return the step of `steps` that is nearest to `wanted`; the last where none is wanted, None where none is."""
    if not steps:
        return None
    return steps[-1] if wanted is None else min(steps, key=lambda step: (abs(step - wanted), step))
