"""The loss curve: where it started, where it went, and whether it ran away before anything broke."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

EDGE_STEPS = 5
"""Steps at either end of the curve whose median stands for it: one batch alone is noise."""


@dataclass(frozen=True)
class LossCurve:
    """The finite losses of a run.

    Attributes:
        steps: steps that have one.
        losses: their losses.
    """

    steps: tuple[int, ...]
    losses: tuple[float, ...]

    @property
    def start(self) -> float | None:
        """Median of the first losses."""
        return median(self.losses[:EDGE_STEPS]) if self.losses else None

    @property
    def end(self) -> float | None:
        """Median of the last losses."""
        return median(self.losses[-EDGE_STEPS:]) if self.losses else None

    def growth_before(self, step: int) -> float:
        """How many times its first value the loss had reached by the last steps before `step`; 1 where unknown."""
        before = [loss for s, loss in zip(self.steps, self.losses, strict=True) if s < step]
        if len(before) < 2 or before[0] <= 0.0:
            return 1.0
        return max(before[-EDGE_STEPS:]) / before[0]


@once_per_run
def loss_curve(run: Run) -> LossCurve:
    """Return the finite losses of `run`."""
    finite = [(s.step, s.loss) for s in run.steps if s.loss is not None and math.isfinite(s.loss)]
    return LossCurve(tuple(step for step, _ in finite), tuple(loss for _, loss in finite))
