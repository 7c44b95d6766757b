"""One twin step: from the boundary where it begins, over forward, loss and backward, to each optimizer's gradients.

The mode lies beneath the user's own modes, and is gone whenever an optimizer works: what that does to the weights is
the run's doing in every world.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.callsite import full_call_site
from ampdoctor.record.twin.eager import Eagerly
from ampdoctor.record.twin.formulas import Formulas
from ampdoctor.record.twin.local.local_twins import LocalTwins
from ampdoctor.record.twin.loss_twin import LossTwin
from ampdoctor.record.twin.mode import TimeIsUpError, TwinMode
from ampdoctor.record.twin.place import Places
from ampdoctor.record.twin.plan import START
from ampdoctor.record.twin.worlds import Worlds, named, reason_of
from ampdoctor.trace.schema import TwinStepRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ampdoctor.record.guard import Guard
    from ampdoctor.record.log import StepLog
    from ampdoctor.record.sites import Sites
    from ampdoctor.record.twin.mode import Follower
    from ampdoctor.record.twin.plan import Plan


LIMIT_S = 120.0
LIMITS_S = {START: 10.0, "asked": math.inf}
"""Seconds that one may take, by its reason: a step of an LSTM under LBFGS has a million operations, and the first step
of a program that makes its own updates may never end."""


class SecondOpinion:
    """A twin step under way.

    Args:
        log: the step.
        plan: what to execute beside it.
        guard: whose modes ours lies beneath.
        sites: names of parameters.
        also: who else looks on.
    """

    def __init__(self, log: StepLog, plan: Plan, guard: Guard, sites: Sites, also: Follower | None = None) -> None:
        self._log, self._plan, self._guard, self._sites = log, plan, guard, sites
        self._worlds = Worlds(log, plan.counterfactuals, plan.half)
        self._local = LocalTwins(log)
        self._loss = LossTwin()
        self._losses = plan.reason != START
        self._followers: list[Follower] = [*self._worlds.carried, self._local]
        if self._losses:
            self._followers.insert(-1, self._loss)
        self.places = Places(lines=True, site=full_call_site)
        lookers = self._followers if also is None else [*self._followers, also]
        self._mode = TwinMode(lookers, self.places, self._failed, limit_s=LIMITS_S.get(plan.reason, LIMIT_S))
        self._formulas = Formulas(self._mode, self._worlds.carried, guard)
        self._eagerly = Eagerly()
        self._declined = plan.declined
        self._eager = False

    def begin(self) -> None:
        """See every operation from now on."""
        self._eagerly.begin()
        self._eager = self._eagerly.on
        self.resume()

    @property
    def seconds(self) -> float:
        """Time that it has taken so far, on the host."""
        return self._mode.seconds

    def suspend(self) -> None:
        """See none for a while."""
        self._guard.set_beneath(None)

    def resume(self) -> None:
        """Go on after `suspend`."""
        if self._mode.on:
            self._guard.set_beneath(self._mode)

    def backward_begins(
        self, roots: Sequence[torch.Tensor], seeds: Sequence[torch.Tensor | None], scale: float | None
    ) -> None:
        """A backward pass is about to start from `roots`, at the run's loss scale: None where no scaler scaled it."""
        if not self._mode.on:
            return
        own = scale if scale is not None else self._log.hand_scale
        self._worlds.scale, self._worlds.by_hand = own, scale is None and own is not None
        # Beside a scaler, a loss that it has not scaled would not be scaled in another setting either.
        self._worlds.seeded = scale is not None or self._log.scale is None
        with self._ours():
            for carried, factor in self._worlds.rescaled() if self._worlds.seeded else ():
                carried.seed(seeds, factor)
            if self._losses and len(roots) == 1 and roots[0].numel() == 1:
                self._worlds.loss(roots[0])
                self._loss.queue(self._log, roots[0], self._worlds.scale)
            self._formulas.backward_begins(roots)

    def backward_ended(self) -> None:
        """It is over."""
        self._formulas.backward_ended()
        with self._ours():
            for carried in self._worlds.carried:
                carried.seed_taken()

    def gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        """Compare the gradients of `parameters`, accumulated and not yet touched by an optimizer, and suspend."""
        self.suspend()
        with self._ours():
            for parameter in parameters if self._mode.on else ():
                if parameter.grad is not None:
                    path, name = self._sites.parameter(parameter)
                    self._worlds.compare(parameter.grad, (path, "weight_grad", name))

    def observe(self, tensor: torch.Tensor, site: tuple[str, str, str], call: int) -> None:
        """Compare a tensor that is being recorded."""
        if self._mode.on and site[1] in {"grad_output", "activation"}:
            with self._ours():
                self._worlds.compare(tensor, site, self._log.micro_batch, call)

    def end(self) -> None:
        """Queue what is left to say, and let go of everything."""
        self.suspend()
        self._eagerly.end()
        if self._mode.on:
            self._worlds.total()
            self._local.finish()
        row = self._row()
        self._log.row("twin_steps", lambda _: row)
        self._release()

    def abandon(self) -> None:
        """Let go of everything, for a recorder that stops in the middle of the step."""
        self.suspend()
        self._formulas.backward_ended()
        self._eagerly.end()
        self._release()

    @contextlib.contextmanager
    def _ours(self) -> Iterator[None]:
        """What fails in here ends the second opinion, not the recording."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - _failed raises it in tests
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """A follower failed: the run goes on without it."""
        self._declined = reason_of(error)
        self._release()
        self._guard.set_beneath(None)  # even a mode that does nothing has Python called for every operation
        if self._guard.strict and not isinstance(error, (torch.cuda.OutOfMemoryError, TimeIsUpError)):
            raise error

    def _release(self) -> None:
        self._mode.on = False
        self._worlds.clear()
        self._loss.clear(off=True)

    def _row(self) -> Any:
        carried = self._plan.counterfactuals
        return TwinStepRow(
            step=self._log.step, kind="carried" if carried else "local", reason=self._plan.reason,
            counterfactuals=[cf.name for cf in carried], declined=self._declined, not_twinned=named(self._followers),
            operations=self._mode.operations, wall_ms=1e3 * self._mode.seconds, twin_bytes=self._worlds.most_bytes,
            eager=self._eager,
        )  # fmt: skip
