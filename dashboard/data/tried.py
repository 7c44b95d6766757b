"""What twin steps tried beside a run: the gradient in other formats and at other loss scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ampdoctor.analysis.twins.measured import measured_steps
from ampdoctor.trace.run import Run

if TYPE_CHECKING:
    from ampdoctor.analysis.twins.measured import MeasuredStep
    from ampdoctor_dashboard.data.opened import OpenedRun

WHOLE = pa.array(["gradient", "loss"])
"""Roles of the step as a whole; what twins measured site by site is not needed here, and much more."""


def tried(opened: OpenedRun) -> tuple[MeasuredStep, ...]:
    """Return what each twin step measured of the whole gradient, in order."""

    def load(name: str) -> tuple[pa.Table, list[str]]:
        table = opened.table(name)
        return (table.filter(pc.is_in(table["role"], WHOLE)) if name == "twins" else table), []

    return measured_steps(Run(opened.info, load))


def nearest(steps: tuple[MeasuredStep, ...], first: int | None, last: int | None) -> MeasuredStep | None:
    """Return the last twin step between two steps, else the last of all; None without any."""
    within = [s for s in steps if (first is None or s.step >= first) and (last is None or s.step <= last)]
    found = within or list(steps)
    return found[-1] if found else None
