"""Whether a step that is not finite in the run is finite in FP32, and so a matter of precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import nonfinite_steps, recorded_steps
from ampdoctor.analysis.forward.first_loss import births_of, first_born
from ampdoctor.analysis.forward.operations import Origin, operations
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.measured import RUN
from ampdoctor.analysis.twins.opinions import twin_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TwinRow


def finite_in_fp32(run: Run, step: int) -> bool | None:
    """Whether `step`, not finite in the run, is finite in FP32; None where nobody looked or it can't be told.

    The FP32 twin carried through the step decides, for it shares no flushed epsilon and no overflow with the run. An
    operation by itself is asked next: its inputs are the run's own, so that its word against precision is weaker.
    """
    carried = carried_finite(run, step)
    if carried is not None:
        return carried
    births = births_of(run, step)
    if births and births[0].finite_in_fp32 is not False:
        return births[0].finite_in_fp32
    # A first one that FP32 shares may have harmed nobody, where another follows that it does not share.
    return False if births and all(b.finite_in_fp32 is False for b in births) else None


def precision_alone(run: Run, step: int) -> bool | None:
    """Whether it is only for its precision that `step` is not finite; None where that can't be told.

    Against precision only a twin carried through the whole step may speak: an operation by itself divides by zero in
    FP32 too where FP16 has flushed the epsilon that came in.
    """
    carried = carried_finite(run, step)
    return carried if carried is not None else finite_in_fp32(run, step) or None


def overflows_made(run: Run, steps: Iterable[int], direction: str) -> list[Origin]:
    """Return the first overflows of those `steps` that begin to fail in `direction` and are finite in FP32.

    Steps whose weights are broken already are left out: what comes first on them came before.
    """
    broken = min(nonfinite_steps(run, "weight"), default=math.inf)
    found = (first_overflow(run, s, direction) for s in sorted(steps) if s < broken)
    return [origin for origin in found if origin and finite_in_fp32(run, origin.row.step)]


def first_overflow(run: Run, step: int, direction: str) -> Origin | None:
    """Return the first birth of `step` if it is an overflow of FP16 in `direction`."""
    birth = first_born(run, step)
    return birth if birth and birth.row.direction == direction and birth.overflows else None


def largest_gradient(run: Run, step: int) -> float:
    """Return the largest magnitude that FP32 gives an FP16 result in the backward pass of `step`, as scaled there."""
    rows = (r for r in operations(run).get(step, ()) if r.direction == "backward")
    return max((r.absmax for r in rows if "float16" in r.dtype_out.split(",")), default=0.0)


def carried_finite(run: Run, step: int) -> bool | None:
    """Whether the FP32 twin carried through `step`, not finite in the run, is finite; None where there is none."""
    rows = _run_rows(run).get(step, ())
    if not any(r.nonfinite for r in rows):
        return None
    if not any(r.nonfinite_fp32 for r in rows):
        return True
    # Weights that were broken before make every format NaN, whatever had broken them: they must be known to be finite.
    broken = min(nonfinite_steps(run, "weight"), default=math.inf)
    return False if step < broken and step in recorded_steps(run, "weight") else None


@once_per_run
def _run_rows(run: Run) -> dict[int, list[TwinRow]]:
    """Return what the run's own loss and gradient were on twin steps, beside FP32, by step."""
    by_step: dict[int, list[TwinRow]] = {}
    for row in twin_rows(run):
        if row.counterfactual == RUN and row.role in {"loss", "gradient"}:
            by_step.setdefault(row.step, []).append(row)
    return by_step
