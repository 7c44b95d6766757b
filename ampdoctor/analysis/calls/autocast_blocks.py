"""The `torch.autocast` blocks of a run, and what ran in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import calls_named, source_of
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, TensorRow

Moment = tuple[float, float]
"""Step, and order within it."""


@dataclass(frozen=True)
class AutocastBlock:
    """One block.

    Attributes:
        enter: its row where it was entered.
        left: its row where it was left; None where it was open to the end of what was recorded.
    """

    enter: CallRow
    left: CallRow | None

    @property
    def asked(self) -> bool:
        """It was to make half of what it can."""
        return self.enter.asked is True and self.enter.dtype in HALF_DTYPES

    @property
    def in_force(self) -> bool:
        """Torch has let it be."""
        return self.enter.autocast in HALF_DTYPES

    @property
    def source(self) -> str | None:
        """`file:line` of the user's code."""
        return source_of(self.enter)

    @property
    def begin(self) -> Moment:
        """When it was entered."""
        return self.enter.step, self.enter.seq

    @property
    def end(self) -> Moment:
        """When it was left."""
        return (self.left.step, self.left.seq) if self.left is not None else (math.inf, 0)

    def holds(self, row: TensorRow | CallRow) -> bool:
        """Whether `row` belongs to what happened in it."""
        return self.begin < (row.step, row.seq) < self.end


@once_per_run
def autocast_blocks(run: Run) -> tuple[AutocastBlock, ...]:
    """Return the recorded blocks, in order."""
    left = {call.target: call for call in calls_named(run, "autocast_exit")}
    return tuple(AutocastBlock(call, left.get(call.target)) for call in calls_named(run, "autocast_enter"))


@once_per_run
def autocast_line(run: Run) -> str | None:
    """Return `file:line` of the first block that was to make half of what it can."""
    return next((b.source for b in autocast_blocks(run) if b.asked), None)
