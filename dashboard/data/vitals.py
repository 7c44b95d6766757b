"""The vitals by which runs are laid over each other, as points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ampdoctor_dashboard.data.timeline import Points, measured_flushed, shares_by_step, unscaled_norm

if TYPE_CHECKING:
    from ampdoctor_dashboard.data.opened import OpenedRun


def vitals_of(opened: OpenedRun, *, over_time: bool) -> dict[str, Points]:
    """Return a run's vitals by name, over its steps or the seconds since its first one."""
    steps = opened.steps
    at = steps.step.astype(float)
    places = dict(zip(at.tolist(), steps.elapsed_s.tolist(), strict=True)) if over_time else {}

    def placed(points: Points) -> Points:
        where, values = points
        return (np.array([places.get(step, np.nan) for step in where.tolist()]) if over_time else where), values

    found = {
        "loss": (at, steps.column("loss")),
        "scale": (at, steps.column("loss_scale")),
        "norm": (at, unscaled_norm(opened)),
        "zeros": shares_by_step(opened, "weight_grad", "zeros")[0],
        "flushed": measured_flushed(opened),
        "wall": (at, steps.column("wall_ms")),
    }
    return {name: placed(points) for name, points in found.items()}
