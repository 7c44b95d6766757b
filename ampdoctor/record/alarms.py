"""Notices that a vital has turned: a skip, a nonfinite loss, a spike, a plateau."""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.trace.schema import StepRow

SPIKE_WINDOW = 20
SPIKE_FACTOR = 3.0
"""A loss this many times the median of the window: ordinary batches vary by tens of percent, not by a factor."""

PLATEAU_WINDOW = 40
PLATEAU_CHANGE = 1e-3
"""Relative change between the two halves of the window below which the loss stands still."""


class Alarms:
    """Looks at each step's vitals and says which of them turned."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=PLATEAU_WINDOW)

    def check(self, row: StepRow) -> list[str]:
        """Return the kinds of alarm that the step `row` raises."""
        kinds = ["skip"] if row.found_inf else []
        if row.loss is None:
            return kinds
        if not math.isfinite(row.loss):
            return [*kinds, "nonfinite-loss"]
        if self._spikes(row.loss):
            kinds.append("loss-spike")
        self._losses.append(row.loss)
        if self._stands_still():
            kinds.append("plateau")
        return kinds

    # Plain Python on purpose: on every step, a few numbers, for which numpy takes ten times as long.
    def _spikes(self, loss: float) -> bool:
        recent = list(self._losses)[-SPIKE_WINDOW:]
        return len(recent) == SPIKE_WINDOW and loss > SPIKE_FACTOR * median(recent) > 0.0

    def _stands_still(self) -> bool:
        if len(self._losses) < PLATEAU_WINDOW:
            return False
        half = PLATEAU_WINDOW // 2
        losses = list(self._losses)
        before, after = sum(losses[:half]) / half, sum(losses[half:]) / half
        return abs(after - before) <= PLATEAU_CHANGE * abs(before)
