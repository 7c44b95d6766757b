"""Replays of a whole run: which failed steps are executed again, and the rows of what that shows."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ampdoctor.record.headroom import device_in_use, room_beside_step
from ampdoctor.record.twin.local.local_twins import LocalTwins
from ampdoctor.record.twin.obstacles import ON_REQUEST, untried
from ampdoctor.record.twin.onsets import Onsets
from ampdoctor.record.twin.plan import declined
from ampdoctor.record.twin.replay.again import replay
from ampdoctor.record.twin.replay.kept import RootCalls
from ampdoctor.record.twin.replay.paces import pace_rows, paces
from ampdoctor.record.twin.replay.purity import effect
from ampdoctor.record.twin.worlds import Worlds, named
from ampdoctor.trace.schema import TwinStepRow

if TYPE_CHECKING:
    from ampdoctor.record.state import State
    from ampdoctor.record.twin.mode import Follower
    from ampdoctor.record.twin.plan import Plan
    from ampdoctor.record.twin.replay.again import Gradients, Outcome


class Replays:
    """Keeps the step at hand, and replays it where it fails.

    Args:
        state: the step at hand.
        always: replay every failure, and in spite of what cannot be taken back.

    Attributes:
        kept: the step at hand.
        asked: the last step that has failed in time, whether it was replayed or not.
    """

    def __init__(self, state: State, *, always: bool) -> None:
        self._state, self._always = state, always
        self.kept = RootCalls(state, _most_bytes)
        self._onsets = Onsets()
        self.asked: int | None = None
        self._timed = False

    @property
    def running(self) -> bool:
        """Whether a step is being executed again: nothing of it is to be recorded as the training's."""
        return self.kept.replaying

    def step_ended(self) -> None:
        """Let go of the step, and keep the next one where twins have been tried on its device or were asked for."""
        self.kept.forget()
        wanted = self._always or untried() is None
        if self.kept.enabled != wanted:
            self.kept.enabled = wanted

    def would(self, step: int) -> bool:
        """Whether `step` would be replayed if it failed now."""
        return self.asked != step and (self._always or self._onsets.would_begin("failure", step))

    def due(self, step: int) -> bool:
        """Whether `step`, which has just failed, is to be replayed: at an onset of trouble, once a step."""
        if self.asked == step:
            return False
        self.asked = step
        return self._onsets.begins("failure", step) or self._always

    def replay(self, plan: Plan, scale: float | None) -> None:
        """Execute the step at hand again with twins, at the run's loss scale `scale`, and queue the rows."""
        log = self._state.log
        done = None if self._always else self._effect()
        if done is not None:
            why = f"not all that the model does can be taken back: {done}; {ON_REQUEST}"
            row = declined(log.step, replace(plan, declined=why), "replay")
            log.row("twin_steps", lambda _: row)
            return
        worlds = Worlds(log, plan.counterfactuals, plan.half)
        worlds.scale, worlds.seeded = scale, True
        local = LocalTwins(log, source="replay")
        followers: list[Follower] = [*worlds.carried, local]
        seeds: list[bool] = []
        began = time.perf_counter()
        outcome = replay(
            self.kept,
            followers,
            path=self._state.sites.path,
            on_error=self._failed,
            seeded=lambda seed: seeds.append(_seed(worlds, seed)),
            harvest=lambda gradients: self._compare(worlds, gradients) if all(seeds) else None,
            hooks_too=self._always,
        )
        if outcome.declined is None:
            worlds.total()
            local.finish()
        row = self._row(plan, outcome, worlds, local, time.perf_counter() - began)
        log.row("twin_steps", lambda _: row)
        worlds.clear()

    def time_precisions(self) -> None:
        """Time the step at hand in other precisions, once in a run whose user wants to know whatever it costs."""
        log = self._state.log
        if self._timed or not self._always or log.step < _SETTLED or not self.kept.calls:
            return
        self._timed = True
        for row in pace_rows(paces(self.kept, hooks_too=True), log.step):
            log.row("paces", lambda _, row=row: row)  # type: ignore[misc]

    def _effect(self) -> str | None:
        """Return what the calls of the step may have done beyond what is put back, None where they surely did not."""
        for call in self.kept.calls:
            module = call.root.module()
            reason = None if module is None else effect(module)
            if reason is None and not _plain((call.args, call.kwargs)):
                reason = "it is handed objects of the user's own"
            if reason is not None:
                return reason
        return None

    def _compare(self, worlds: Worlds, gradients: Gradients) -> None:
        for weight, gradient in gradients:
            path, name = self._state.sites.parameter(weight)
            worlds.compare(gradient, (path, "weight_grad", name))

    def _row(self, plan: Plan, outcome: Outcome, worlds: Worlds, local: LocalTwins, seconds: float) -> TwinStepRow:
        left_out = "; ".join(outcome.left_out) or None
        return TwinStepRow(
            step=self._state.log.step, kind="replay", reason=plan.reason,
            counterfactuals=[cf.name for cf in plan.counterfactuals],
            declined=outcome.declined or left_out or plan.declined,
            not_twinned=named([*worlds.carried, local]), operations=local.operations,
            wall_ms=1e3 * seconds, twin_bytes=worlds.most_bytes, eager=False, confirmed=outcome.confirmed,
        )  # fmt: skip

    def _failed(self, error: Exception) -> None:
        if self._state.guard.strict:
            raise error


_SETTLED = 3
"""From this step on nothing is done for the first time any more."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.dtype, torch.device)


def _plain(value: object) -> bool:
    """Whether a value holds nothing but tensors and constants."""
    if isinstance(value, dict):
        return type(value) is dict and all(map(_plain, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_plain, value))
    return isinstance(value, _PLAIN)


_MOST_BYTES = 256 << 20


def _most_bytes() -> float:
    """Return how much may be kept from being freed on every step; asked once a step, so the host's is not looked at."""
    device = device_in_use()
    return _MOST_BYTES if device.type == "cpu" else min(_MOST_BYTES, room_beside_step(device))


def _seed(worlds: Worlds, seed: torch.Tensor) -> bool:
    """Have twins at another loss scale start from as much more or less; returns whether the seed is finite.

    What comes after a loss that was not finite is NaN in every world and says nothing of the module's own gradients.
    """
    for carried, factor in worlds.rescaled():
        carried.replace(seed, carried.values(seed) * factor)
    return bool(torch.isfinite(seed).all())
