"""When accumulators are looked at: on two of the first steps, and then again and again, for totals fill up slowly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from ampdoctor.record.accumulators.follower import Accumulators
from ampdoctor.record.groups import parameters_of
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.obstacles import obstacle
from ampdoctor.record.twin.place import NOWHERE, Place, Places

if TYPE_CHECKING:
    from ampdoctor.record.log import StepLog
    from ampdoctor.record.state import State

_FIRST = frozenset({1, 3, 6, 12, 24, 48})
_EVERY = 97
"""A prime: totals that are cleared every hundred steps are seen at every age."""

_FREE_SECONDS = 6.0
"""A step of 600 micro-batches has 40,000 operations; each takes 20 microseconds, 60 where all cores are busy."""

_SHARE = 0.01
"""Largest share of the run's time beyond those seconds."""

_STEP_SECONDS = 4.0
"""Most of them that one step may take; what is beyond it is not looked at, and what was seen until then is told."""


class _Unplaced(Places):
    """Nobody asks in which module an operation is."""

    def __init__(self) -> None:
        super().__init__(lines=False)
        self._nowhere = Place(None, False, NOWHERE)

    def current(self) -> Place:
        return self._nowhere


class AccumulatorLook:
    """Looks at one step after another, where nothing else of ours does.

    Args:
        state: what the parts of the recorder share.
        wanted: False where the user wants no second opinion of any kind.
    """

    def __init__(self, state: State, *, wanted: bool) -> None:
        self._state, self._wanted = state, wanted
        self._due = self._cut = False
        self._wall = self._spent = 0.0
        self._log: StepLog | None = None
        self._follower: Accumulators | None = None
        self._mode: TwinMode | None = None

    @property
    def looking(self) -> bool:
        """Whether it looks at the step at hand."""
        return self._mode is not None

    def remove(self) -> None:
        """The recorder stops, perhaps in the middle of a step."""
        self._wanted = False
        self._take_off()

    def begin(self, log: StepLog, *, busy: bool) -> None:
        """Look at the step of `log` if one is due; `busy` says that another mode of ours is in force."""
        if not self._wanted:
            return
        self._due |= log.step in _FIRST or (log.step > 0 and log.step % _EVERY == 0)
        if not self._due or busy or self._left() <= 0.0 or obstacle(asked=False) is not None:
            return
        self._due = self._cut = False
        try:
            weights = [p for o in self._state.optimizers.live() for p in parameters_of(o)]
            self._log, self._follower = log, Accumulators(self._state, weights, self._over)
            # By the thread's own clock: on a busy machine the run waits for its turn, and that is no cost of ours.
            self._mode = TwinMode([self._follower], _Unplaced(), self._fail, clock=time.thread_time)
        except Exception as error:  # noqa: BLE001 - weights of a kind that nobody thought of
            self._fail(error)
        self.resume()

    def end(self, wall_seconds: float = 0.0) -> None:
        """The step is over: queue what was seen."""
        self._wall += wall_seconds
        log, follower, mode = self._log, self._follower, self._mode
        sound = mode is not None and (mode.on or self._cut)
        self._take_off()
        if log is not None and follower is not None and sound:
            log.totals_watched = True
            follower.finish(log)

    def suspend(self) -> None:
        """An optimizer begins: what it does to its own state is recorded with it."""
        if self._mode is not None:
            self._state.guard.set_beneath(None)

    def resume(self) -> None:
        """It is done."""
        if self._mode is not None and self._mode.on:
            self._state.guard.set_beneath(self._mode)

    def _left(self) -> float:
        """Return the seconds that may still be spent."""
        return max(_FREE_SECONDS, _SHARE * self._wall) - self._spent

    def _over(self) -> bool:
        """Whether looking has taken its time for this step; it then ends in the middle of it."""
        mode = self._mode
        if mode is None or not mode.on:
            return True
        if mode.seconds <= min(_STEP_SECONDS, self._left()):
            return False
        mode.on, self._cut = False, True
        self._state.guard.set_beneath(None)
        return True

    def _take_off(self) -> None:
        if self._mode is not None:
            mode, self._mode = self._mode, None
            self._spent += mode.seconds
            mode.on = False
            self._state.guard.set_beneath(None)
        self._log = self._follower = None

    def _fail(self, error: Exception) -> None:
        """An error of ours ends this, and nothing else."""
        self._wanted = False
        if self._mode is not None:
            self._mode.on = False
        if self._state.guard.strict and not isinstance(error, torch.cuda.OutOfMemoryError):
            raise error
