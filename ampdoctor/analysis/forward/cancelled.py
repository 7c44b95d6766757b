"""Differences of which little but rounding is left, where roots, logarithms and divisions go on with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.forward.birth_shapes import SCALINGS, SINGULAR
from ampdoctor.analysis.forward.op_flow import CASTS, Flow, base
from ampdoctor.analysis.forward.operations import operations
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.measured import measured_steps

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow

MOSTLY = 0.5
"""Share of a difference's elements that cancel from which on it is noise more than it is a difference."""


@dataclass(frozen=True)
class Coarse:
    """A difference that is mostly rounding, on a step whose gradient was measured.

    Attributes:
        difference: the difference.
        use: the root, logarithm or division that goes on with it.
        wrong: what is wrong of the step's gradient, as a share of FP32's energy.
    """

    difference: OpRow
    use: OpRow
    wrong: float


@once_per_run
def coarse_differences(run: Run) -> tuple[Coarse, ...]:
    """Return the differences that are mostly rounding, in order of their steps."""
    wrong = {s.step: s.run.wrong for s in measured_steps(run) if s.run is not None}
    found = []
    for step, rows in sorted(operations(run).items()):
        share = wrong.get(step)
        if share is None:
            continue
        flow = Flow.of(rows)
        for row in rows:
            if row.direction == "forward" and (row.cancelled or 0) >= MOSTLY * row.numel:
                use = _use(flow, row)
                if use is not None:
                    found.append(Coarse(row, use, share))
    return tuple(found)


def _use(flow: Flow, row: OpRow) -> OpRow | None:
    """Return the root, logarithm or division by a difference; to divide the difference itself harms nothing."""
    after = flow.after(row, lambda r: base(r) in SCALINGS - {"mul", "div"} | CASTS)
    return next((r for r in after if base(r) in SINGULAR - {"div", "pow"}), None)
