"""The steps of a run whose loss was NaN or infinite: how many, how regularly, and whether it ever came back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

SHOWN = 5
"""Steps named in a sentence; more would not be read."""

REGULAR = 3
"""Steps at one distance from each other that are no chance."""


@dataclass(frozen=True)
class BrokenLosses:
    """The steps whose loss was NaN or infinite.

    Attributes:
        steps: their indices, in order.
        known: steps whose loss is known.
        lasting: the last loss is one of them.
    """

    steps: tuple[int, ...]
    known: int
    lasting: bool

    @property
    def every(self) -> int | None:
        """The distance at which they come back, above one step; None where they do not come regularly."""
        gaps = {b - a for a, b in pairwise(self.steps)}
        regular = len(self.steps) >= REGULAR and len(gaps) == 1
        return next(iter(gaps)) if regular and gaps != {1} else None

    @property
    def from_then_on(self) -> int | None:
        """The step from which on every loss was broken, up to the end; None where the last one was not."""
        if not self.lasting:
            return None
        first = self.steps[-1]
        for step in reversed(self.steps[:-1]):
            if step != first - 1:
                break
            first = step
        return first

    def evidence(self) -> list[Evidence]:
        """Return how many losses were broken, and at which distance."""
        if not self.steps:
            return []
        named = ", ".join(map(str, self.steps[:SHOWN])) + (", ..." if len(self.steps) > SHOWN else "")
        text = f"The loss is NaN or infinite on {len(self.steps)} of {counted(self.known, 'step')}: "
        found = [Evidence("nonfinite_losses", len(self.steps), f"{text}{named}.")]
        if self.every is not None:
            text = (
                f"It comes back every {self.every} steps: the same batch of each round of the data, or whatever the "
                "code does at that distance."
            )
            found.append(Evidence("steps_between", self.every, text))
        return found


@once_per_run
def broken_losses(run: Run) -> BrokenLosses:
    """Return the steps of `run` whose loss was NaN or infinite."""
    losses = [(s.step, s.loss) for s in run.steps if s.loss is not None]
    broken = [step for step, loss in losses if not math.isfinite(loss)]
    lasting = bool(losses) and not math.isfinite(losses[-1][1])
    return BrokenLosses(tuple(broken), len(losses), lasting)
