"""Which steps are examined: the first ones, every N-th, and bursts when a vital turns - within a budget of time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FIRST_STEPS = 3
"""A fault of the set-up shows at once, and a short run must get its examination too."""

DEFAULT_EVERY = 50
"""Until here the default schedule doubles its distance (4, 8, 16, 32), so that a run of 30 steps gets several."""

BURST_STEPS = 2
FIRST_PAUSE = 25
"""Steps without a further burst of the same kind after one; doubles with each, so that a lasting fault is cheap."""

PLAIN_STEPS = 20
"""Steps without an examination that one with it is compared with."""

FREE_SECONDS = 2.0
"""Examination time that nobody minds in a whole run; the budget only binds beyond it. 3 % of a minute."""


class Schedule:
    """Decides step by step.

    Args:
        every: examine each `every`-th step whatever it costs; None for the default schedule within the budget.
        budget: largest share of wall time that examinations may take.
        in_step: whether other ranks have the same schedule, and a tensor that is spread over them is whole only where
            all of them examine the same steps. What each has spent is its own, so the budget decides on bursts alone.

    Raises:
        AmpDoctorError: `every` is below 1.
    """

    def __init__(self, every: int | None = None, budget: float = 0.03, *, in_step: Callable[[], bool] = bool) -> None:
        if every is not None and every < 1:
            raise AmpDoctorError(f"every must be at least 1, not {every}")
        self.every = every
        self.budget = budget
        self._in_step = in_step
        self._spent = 0.0
        self._wall = 0.0
        self._plain: deque[float] = deque(maxlen=PLAIN_STEPS)
        self._burst: dict[int, str] = {}
        self._onset: set[int] = set()
        self._last: dict[str, int] = {}
        self._foreseen: set[str] = set()
        self._quiet_until: dict[str, int] = {}
        self._pause: dict[str, int] = {}

    def reason(self, step: int) -> str | None:
        """Return why `step` is to be examined, or None."""
        if step < FIRST_STEPS:
            return "first"
        if self.every is not None and step % self.every == 0:
            return "interval"
        if step in self._onset:
            return self._burst[step]
        due = self.every is None and _due_by_default(step)
        if self._over_budget():
            return "interval" if due and self._in_step() else None
        if step in self._burst:
            return self._burst[step]
        return "interval" if due else None

    def account(self, wall_seconds: float, own_seconds: float, *, examined: bool) -> None:
        """Add what the last step took in all, and what the recorder spent on the host since the one before.

        What an examination leaves to the device to do shows only in the step's length, so that is compared with
        the steps that were not examined.
        """
        self._wall += wall_seconds
        if not examined:
            self._plain.append(wall_seconds)
            self._spent += own_seconds
        elif self._plain:
            self._spent += max(own_seconds, wall_seconds - float(np.median(self._plain)))
        else:
            self._spent += own_seconds

    def alarm(self, kind: str, step: int) -> None:
        """Ask for a burst from `step` on because the vital `kind` has turned on the step before.

        The first of each kind is taken whatever it costs: without it the onset of a fault would never be seen. So is
        the step on which a trouble that comes round (a bad batch every so often) is due again, once it has come twice.
        """
        before = self._last.get(kind)
        self._last[kind] = step
        quiet = step < self._quiet_until.get(kind, 0)
        if before is not None and (kind not in self._foreseen or not quiet):
            due_again = 2 * step - before - 1
            self._want([due_again], kind, whatever_it_costs=kind not in self._foreseen)
            self._foreseen.add(kind)
        if quiet:
            return
        burst = range(step, step + BURST_STEPS)
        self._want(burst, kind, whatever_it_costs=kind not in self._pause)
        pause = self._pause.get(kind, FIRST_PAUSE)
        self._quiet_until[kind] = step + pause
        self._pause[kind] = 2 * pause

    def _want(self, steps: Iterable[int], kind: str, *, whatever_it_costs: bool) -> None:
        for step in steps:
            self._burst.setdefault(step, kind)
            if whatever_it_costs:
                self._onset.add(step)

    def _over_budget(self) -> bool:
        return self._spent > max(FREE_SECONDS, self.budget * self._wall)


def _due_by_default(step: int) -> bool:
    is_power_of_two = step & (step - 1) == 0
    return step % DEFAULT_EVERY == 0 or (step < DEFAULT_EVERY and is_power_of_two)
