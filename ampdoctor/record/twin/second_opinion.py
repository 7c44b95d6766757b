"""One twin step: from the boundary where it begins, over forward, loss and backward, to each optimizer's gradients.

The mode lies beneath the user's own modes, and is gone whenever an optimizer works: what that does to the weights is
the run's doing in every world.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.autograd_graph import hand_factors
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.counterfactual import FP32
from ampdoctor.record.twin.eager import Eagerly
from ampdoctor.record.twin.local import LocalTwins
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.place import Places
from ampdoctor.record.twin.rows import TwinRows, World
from ampdoctor.record.twin.storages import NotTwinnable
from ampdoctor.trace.schema import TwinStepRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.record.guard import Guard
    from ampdoctor.record.log import Scalar, StepLog
    from ampdoctor.record.sites import Sites
    from ampdoctor.record.twin.plan import Plan


class SecondOpinion:
    """A twin step under way.

    Args:
        log: the step.
        plan: what to execute beside it.
        guard: whose modes ours lies beneath.
        sites: names of parameters.
    """

    def __init__(self, log: StepLog, plan: Plan, guard: Guard, sites: Sites) -> None:
        self._log, self._plan, self._guard, self._sites = log, plan, guard, sites
        self._carried = [CarriedTwin(cf) for cf in plan.counterfactuals]
        self._local = LocalTwins(log) if plan.local else None
        self.places = Places(lines=plan.local)
        followers = [*self._carried, *([self._local] if self._local else [])]
        self._mode = TwinMode(followers, self.places, self._failed)
        self._rows = TwinRows(log)
        self._eagerly = Eagerly()
        self._declined = plan.declined
        self._own_scale: Scalar = None
        self._eager = False

    @property
    def _reference(self) -> CarriedTwin | None:
        return next((c for c in self._carried if c.counterfactual == FP32), None)

    def begin(self) -> None:
        """See every operation from now on."""
        self._eagerly.begin()
        self._eager = self._eagerly.on
        self.resume()

    def suspend(self) -> None:
        """See none for a while."""
        self._guard.set_beneath(None)

    def resume(self) -> None:
        """Go on after `suspend`."""
        if self._mode.on:
            self._guard.set_beneath(self._mode)

    def backward_begins(
        self,
        roots: Sequence[torch.Tensor],
        seeds: Sequence[torch.Tensor | None],
        scale: float | None,
    ) -> None:
        """A backward pass is about to start from `roots`, at the run's loss scale: None where no scaler scaled it."""
        if not self._mode.on:
            return
        own = scale if scale is not None else _hand_made_scale(roots)
        self._own_scale = own
        for carried in self._carried:
            wanted = carried.counterfactual.loss_scale
            if wanted is not None and (scale is not None or self._log.scale is None):
                carried.seed(seeds, wanted / (own or 1.0))
        if len(roots) == 1 and roots[0].numel() == 1:
            self._note_loss(roots[0])

    def backward_ended(self) -> None:
        """It is over."""
        for carried in self._carried:
            carried.seed_taken()

    def gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        """Compare the gradients of `parameters`, accumulated and not yet touched by an optimizer, and suspend."""
        self.suspend()
        if not self._mode.on or self._reference is None:
            return
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None:
                path, name = self._sites.parameter(parameter)
                self._compare(gradient, (path, "weight_grad", name), None, 0)

    def observe(self, tensor: torch.Tensor, site: tuple[str, str, str], call: int) -> None:
        """Compare a tensor that is being recorded, where the worlds differ in it."""
        if (
            self._mode.on
            and self._reference is not None
            and site[1] in {"grad_output", "activation"}
        ):
            self._compare(tensor, site, self._log.micro_batch, call)

    def end(self) -> None:
        """Queue what is left to say, and let go of everything."""
        self.suspend()
        self._eagerly.end()
        if self._mode.on:
            self._rows.total()
            if self._local is not None:
                self._local.finish()
        self._log.row("twin_steps", self._row())
        self._release()

    def abandon(self) -> None:
        """Let go of everything, for a recorder that stops in the middle of the step."""
        self.suspend()
        self._eagerly.end()
        self._release()

    def _compare(
        self, tensor: torch.Tensor, site: tuple[str, str, str], micro_batch: int | None, call: int
    ) -> None:
        worlds = [(World(None, self._plan.half), _dense(tensor))]
        reference = None
        try:
            for carried in self._carried:
                values = carried.values(_dense(tensor))
                worlds.append((World(carried.counterfactual, self._plan.half), values))
                if carried is self._reference:
                    reference = values
        except NotTwinnable:
            return
        if reference is None or (site[1] == "activation" and reference is worlds[0][1]):
            return  # the same in every world
        for world, values in worlds:
            cf = world.counterfactual
            if site[1] == "activation" and cf is not None and cf.loss_scale is not None:
                continue  # a loss scale changes no activation
            self._rows.add(
                world, site, values, reference, scale=self._own_scale, micro_batch=micro_batch, call=call
            )  # fmt: skip

    def _note_loss(self, root: torch.Tensor) -> None:
        batch, scale = self._log.micro_batch, self._own_scale
        self._rows.loss(World(None, self._plan.half), root, batch, scale)
        for carried in self._carried:
            try:
                value = carried.values(root)
            except NotTwinnable:
                continue
            self._rows.loss(World(carried.counterfactual, self._plan.half), value, batch, scale)

    def _failed(self, error: Exception) -> None:
        """A follower failed: the run goes on without it."""
        kind = type(error).__name__
        short = isinstance(error, torch.OutOfMemoryError)
        self._declined = (
            "out of memory" if short else f"{kind}: {str(error).partition(chr(10))[0][:200]}"
        )
        self._release()
        if self._guard.strict and not short:
            raise error

    def _release(self) -> None:
        self._mode.on = False
        for carried in self._carried:
            carried.storages.clear()

    def _row(self) -> Any:
        named: dict[str, int] = {}
        for follower in (*self._carried, *([self._local] if self._local else [])):
            for name, times in follower.not_twinned.items():
                named[name] = max(times, named.get(name, 0))
        row = TwinStepRow(
            step=self._log.step, kind="carried" if self._carried else "local", reason=self._plan.reason,
            counterfactuals=[c.counterfactual.name for c in self._carried], declined=self._declined,
            not_twinned=[f"{name} (x{times})" for name, times in sorted(named.items())],
            operations=self._mode.operations, wall_ms=1e3 * self._mode.seconds,
            twin_bytes=sum(c.storages.most_bytes for c in self._carried), eager=self._eager,
        )  # fmt: skip
        return lambda _: row


def _hand_made_scale(roots: Sequence[torch.Tensor]) -> float | None:
    """Return the number above 1 that the code multiplies the loss by, where there is one."""
    factors = hand_factors(roots[0].grad_fn) if len(roots) == 1 else None
    largest = max(factors or (), default=1.0)
    return largest if largest > 1.0 else None


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a sparse gradient lie in a dense tensor of their own."""
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor
