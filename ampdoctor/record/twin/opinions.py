"""Second opinions of a whole run: which steps get one, within what they may cost in time and memory."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import torch

from ampdoctor.record.headroom import device_in_use, room_beside_step
from ampdoctor.record.twin.hunt import Hunt
from ampdoctor.record.twin.obstacles import obstacle
from ampdoctor.record.twin.onsets import Onsets
from ampdoctor.record.twin.plan import EARLY, START, Knowledge, Plan, counterfactuals, declined
from ampdoctor.record.twin.replay.replays import Replays
from ampdoctor.record.twin.second_opinion import SecondOpinion
from ampdoctor.trace.schema import TwinStepRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn

    from ampdoctor.record.log import Finished, StepLog
    from ampdoctor.record.state import State
    from ampdoctor.record.twin.counterfactual import Counterfactual
    from ampdoctor.record.twin.mode import Follower
    from ampdoctor.record.twin.place import Places

SHARE = 0.01
"""Largest share of the run's time for second opinions beyond the early one and those at an onset of trouble."""

FAILURES = frozenset({"skip", "nonfinite-loss"})
"""Vitals that a replay answers."""

BROKEN = frozenset({"nonfinite-gradient", "nonfinite-loss"})
"""Vitals that are worth a look at each operation where nothing is in half too."""

_FOLLOW_UPS = 2
"""Second opinions that only ask what the one before has left open."""

MORE_ZEROS = 0.1
"""Rise of the share of zeros among half gradients since the last second opinion from which on another one is due: they
are flushed, or are zero by right, which only a twin can tell."""

_PLAIN_STEPS = 20
_BYTES = {"fp32": 2.2, "bf16": 1.1, "fp16": 1.1}
"""Memory of a carried twin, in bytes of the step's own tensors."""

_ONLY_BACKWARD = 0.6
"""Share of it that is left where only the loss scale differs: the forward is the run's own."""


class Proving(str, Enum):
    """How many second opinions the user wants."""

    NONE = "none"
    DEFAULT = "default"
    ALWAYS = "always"

    @classmethod
    def of(cls, prove: bool | None) -> Proving:
        """Return what True (always), False (none) and None (by default) mean."""
        return cls.DEFAULT if prove is None else cls.ALWAYS if prove else cls.NONE


class SecondOpinions:
    """Decides, starts and ends them.

    Attributes:
        current: the one under way.
        lent: returns who looks on at the step already, for one that begins in the middle of it.
        replays: of failed steps; None where the user wants no second opinion.
    """

    def __init__(self, proving: Proving, state: State) -> None:
        self._proving, self._state = proving, state
        self.replays = Replays(state, always=proving is Proving.ALWAYS) if proving is not Proving.NONE else None
        self._known = Knowledge()
        self._wanted: dict[int, str] = {}
        self._onsets, self._misses, self._hunt = Onsets(), Onsets(), Hunt()
        self._plain: deque[float] = deque(maxlen=_PLAIN_STEPS)
        self._left: tuple[Counterfactual, ...] = ()
        self._follow_ups = 0
        self._wall = self._spent = 0.0
        self._zeros: float | None = None
        self._asked = self._begun = False
        self.lent: Callable[[], Follower | None] = lambda: None
        self.current: SecondOpinion | None = None
        if proving is not Proving.NONE:
            self._wanted[EARLY] = "first"

    def ask(self) -> None:
        """Give one on the next step, whatever it costs."""
        self._asked = True

    def reason(self, step: int, examined: str | None) -> str | None:
        """Return why `step` gets a second opinion; `examined` says why it is examined anyhow."""
        if self._asked:
            return "asked"
        if self._proving is Proving.NONE:
            return None
        if step in self._wanted:
            return self._wanted[step]
        if self._proving is Proving.ALWAYS:
            return "asked" if examined is not None else None
        return self._within_budget(step, examined) if self._known.half is not None else None

    def _within_budget(self, step: int, examined: str | None) -> str | None:
        if self._hunt.wanted():
            return "nonfinite-loss"
        due = examined is not None and step > EARLY
        return "interval" if due and self._spent <= SHARE * self._wall else None

    def alarm(self, kind: str, step: int) -> None:
        """The vital `kind` has turned: look at `step`, at an onset whatever it costs."""
        self._hunt.alarm(kind)
        if self._proving is not Proving.NONE and self._onsets.begins(kind, step):
            self._wanted[step] = kind

    def first_call(self, module: nn.Module) -> Places | None:
        """A module begins, on a step without second opinion: where it is a training's first, look at each operation.

        A training that breaks at once leaves nothing to look at on the next step where no scaler skips the broken one.
        """
        if self._begun or self._proving is Proving.NONE or self._state.log.step:
            return None
        if self.current is not None or not torch.is_grad_enabled() or not module.training:
            return None
        self._begun = True
        if obstacle(asked=False) is not None:
            return None  # as will be said when the planned one comes
        plan, beside = Plan(START, "fp16", ()), self.lent()
        opinion = SecondOpinion(self._state.log, plan, self._state.guard, self._state.sites, also=beside)
        opinion.begin()
        self._state.weights.observe(opinion.gradients)
        self.current = opinion
        return opinion.places

    def learn(self, finished: Finished, next_step: int) -> None:
        """Take note of the rows of a step; what was left open is asked on the next one."""
        rows = finished.rows
        self._known.learn(finished)
        self._hunt.learn(rows)
        if self._proving is Proving.NONE:
            return
        known = self._known
        if any(isinstance(row, TwinStepRow) and row.reason != START for _, row in rows):
            self._zeros = known.zero_share()
            again = bool(self._left) or known.wants_islands() or known.wants_lower()
            if again and self._follow_ups < _FOLLOW_UPS:
                self._follow_ups += 1
                self._wanted.setdefault(next_step, "follow-up")
        elif self._zeros is not None and known.zero_share() > self._zeros + MORE_ZEROS:
            self.alarm("gradient-zeros", next_step)

    def begin(self, log: StepLog, reason: str) -> None:
        """Start one on the step of `log`."""
        self._asked = False
        plan = self._plan(reason, self._known.half)
        if plan.given:
            self.current = SecondOpinion(log, plan, self._state.guard, self._state.sites)
            self.current.begin()
        else:
            log.row("twin_steps", lambda _: declined(log.step, plan, "carried"))

    def would_replay(self) -> bool:
        """Whether the step at hand would be replayed if it failed."""
        return self.replays is not None and self.replays.would(self._state.log.step)

    def failed(self, kind: str, scale: float | None) -> None:
        """The step at hand has just failed, and nothing has touched the weights since: replay it at an onset.

        Args:
            kind: the vital that turned.
            scale: the run's loss scale.
        """
        if self.replays is None or not self.replays.due(self._state.log.step):
            return
        if self.current is not None:
            self.current.suspend()
        # A step that failed at once comes before anything is known; what has a scaler is FP16.
        half = self._known.half or ("fp16" if scale is not None else None)
        plan, log = self._plan(kind, half), self._state.log
        if plan.given:
            self.replays.replay(plan, scale)
        else:
            log.row("twin_steps", lambda _: declined(log.step, plan, "replay"))

    def missed(self, kind: str, step: int) -> None:
        """It shows only now that `step` has failed: its inputs are gone, and the weights have moved on."""
        unseen = self.replays is not None and self.replays.asked != step
        if unseen and kind in FAILURES and self._misses.begins(kind, step):
            plan = _nothing(kind, "that it failed was not known before the optimizer had stepped")
            self._state.log.row("twin_steps", lambda _: declined(step, plan, "replay"))

    def end(self, wall_seconds: float) -> None:
        """The step is over."""
        self._wall += wall_seconds
        if self.replays is not None:
            self.replays.step_ended()
        if self.current is None:
            self._plain.append(wall_seconds)
            return
        seconds = self.current.seconds
        self._hunt.took(seconds)
        self.current.end()
        self.current = None
        # What is left to the device to do shows only in the step's length.
        usual = float(np.median(self._plain)) if self._plain else wall_seconds
        self._spent += max(seconds, wall_seconds - usual)

    def abandon(self) -> None:
        """The recorder stops in the middle of a step."""
        if self.current is not None:
            self.current.abandon()
            self.current = None
        if self.replays is not None:
            self.replays.kept.remove()

    def _plan(self, reason: str, half: str | None) -> Plan:
        always = self._proving is Proving.ALWAYS
        why_not = obstacle(asked=always or reason == "asked")
        if why_not is None and half is None and reason in BROKEN:
            return Plan(reason, "fp16", ())  # its own FP32: which operation breaks is all there is to ask
        if why_not is None and half is None:
            nothing = "the run holds nothing in half precision"
            why_not = nothing if self._known.examined else "nothing is known of the run yet"
        if why_not is not None or half is None:
            return _nothing(reason, why_not)
        wanted = counterfactuals(self._known, half, always=always)
        if self._left:
            wanted = (wanted[0], *self._left)
        return self._fitting(Plan(reason, half, wanted))

    def _fitting(self, plan: Plan) -> Plan:
        """Leave out what there is no memory for, and try it the next time."""
        free, kept = room_beside_step(device_in_use()), list(plan.counterfactuals)
        while kept and self._bytes(kept) > free:
            kept.pop()
        self._left = plan.counterfactuals[len(kept) :] if kept else ()
        if len(kept) == len(plan.counterfactuals):
            return plan
        names = ", ".join(c.name for c in plan.counterfactuals[len(kept) :])
        return replace(plan, counterfactuals=tuple(kept), declined=f"too little free memory for {names}")

    def _bytes(self, wanted: Iterable[Counterfactual]) -> float:
        return self._known.step_bytes() * sum(
            _BYTES[c.number_format] * (1.0 if c.loss_scale is None or c.fp32_modules else _ONLY_BACKWARD)
            for c in wanted
        )


def _nothing(reason: str, why: str | None) -> Plan:
    return Plan(reason, "fp16", (), given=False, declined=why)
