"""The run and its twins, side by side: one tensor is compared in all of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch

from ampdoctor.record.headroom import device_in_use, room_beside_step
from ampdoctor.record.tensors import HALVES
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.counterfactual import FP32
from ampdoctor.record.twin.kinds import values_of
from ampdoctor.record.twin.mode import TimeIsUpError
from ampdoctor.record.twin.rows import TwinRows, World
from ampdoctor.record.twin.storages import Budget, NotTwinnable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ampdoctor.record.log import Scalar, StepLog
    from ampdoctor.record.twin.counterfactual import Counterfactual
    from ampdoctor.record.twin.mode import Follower

Site = tuple[str, str, str]
"""Module path, role, slot."""


class Worlds:
    """The counterfactuals of one step, and the rows of what they come to.

    Args:
        log: the step.
        counterfactuals: the settings; without FP32 among them nothing can be compared.
        half: name of the format that the run holds in half.

    Attributes:
        carried: the twins.
        scale: the run's loss scale in the gradients at hand; None where there is none.
        seeded: twins at another loss scale have been given their seed.
        by_hand: code of the user's has multiplied by the scale, and will divide by it again.
    """

    def __init__(self, log: StepLog, counterfactuals: Sequence[Counterfactual], half: str) -> None:
        self.carried = [CarriedTwin(cf) for cf in counterfactuals]
        self.scale: Scalar = None
        self.seeded = self.by_hand = False
        self._half = half
        self._rows = TwinRows(log)
        self._log = log
        self._reference = next((c for c in self.carried if c.counterfactual == FP32), None)
        budget = Budget(room_beside_step(device_in_use()))
        for carried in self.carried:
            carried.storages.budget = budget

    def compare(self, tensor: torch.Tensor, site: Site, micro_batch: int | None = None, call: int = 0) -> None:
        """Queue a row per world for `tensor`, where they differ in it.

        Args:
            tensor: what the run has computed.
            site: where it is.
            micro_batch: the backward pass it comes from; None for what the passes add up to.
            call: which call of the module.
        """
        if self._reference is None:
            return
        values = values_of(tensor)
        try:
            found = [(c.counterfactual, c.values(values)) for c in self.carried if not c.mixed]
            reference = self._reference.values(values)
        except NotTwinnable:
            return
        activation = site[1] == "activation"
        if activation and reference is values:
            return  # the same in every world
        for counterfactual, theirs in [(None, values), *found]:
            other_scale = counterfactual is not None and counterfactual.loss_scale is not None
            # A loss scale changes no activation; and no gradient that `autograd.grad` has made for the user.
            if other_scale and (activation or not self.seeded):
                continue
            # Half weight gradients may have been divided by the run's scale already, which flushes by itself.
            if other_scale and self.by_hand and site[1] == "weight_grad" and tensor.dtype in HALVES:
                continue
            world = World(counterfactual, self._half)
            self._rows.add(world, site, theirs, reference, scale=self.scale, micro_batch=micro_batch, call=call)

    def rescaled(self) -> Iterator[tuple[CarriedTwin, float]]:
        """Yield the twins at another loss scale, each with that scale over the run's."""
        own = self.scale if isinstance(self.scale, float) and self.scale else 1.0
        for carried in self.carried:
            if carried.counterfactual.loss_scale is not None:
                yield carried, carried.counterfactual.loss_scale / own

    def loss(self, root: torch.Tensor) -> None:
        """Queue the value that a backward pass starts from, in every world."""
        batch = self._log.micro_batch
        self._rows.loss(World(None, self._half), root, batch, self.scale)
        for carried in self.carried:
            try:
                value = carried.values(root)
            except NotTwinnable:
                continue
            self._rows.loss(World(carried.counterfactual, self._half), value, batch, self.scale)

    def total(self) -> None:
        """Queue what the weight gradients of all parameters come to."""
        self._rows.total()

    @property
    def most_bytes(self) -> int:
        """The most that the twins have held, each at its own time."""
        return sum(c.storages.most_bytes for c in self.carried)

    def clear(self) -> None:
        """Let go of all twins."""
        for carried in self.carried:
            carried.storages.clear()


def named(followers: Iterable[Follower]) -> list[str]:
    """Return the operations that `followers` could not execute, with the reason and how often."""
    most: Counter[str] = Counter()
    for follower in followers:
        most |= follower.not_twinned
    return [f"{name} (x{times})" for name, times in sorted(most.items())]


def reason_of(error: Exception) -> str:
    """Return why a second opinion ended, in one line."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory"
    if isinstance(error, TimeIsUpError):
        return str(error)
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
