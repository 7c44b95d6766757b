"""What trains a planned model under a layout: the optimizer, and the copies and parts that it works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.ledger.holdings import Holding, Holdings
from ampdoctor.record.ledger.storages import TEMPORARY
from ampdoctor.record.planning.any_value import AnyValue
from ampdoctor.record.planning.sharding import GATHERED, Sharding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.record.ledger.ledger import Ledger
    from ampdoctor.record.planning.layouts import Layout
    from ampdoctor.record.planning.optimizers import OptimizerChoice


class PlannedHoldings(Holdings):
    """Those of a planned training.

    Args:
        model: the model.
        optimizer: what trains it.
        sharding: what is spread over ranks.
        counters: counters of steps take memory of the device.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, sharding: Sharding, *, counters: bool
    ) -> None:
        super().__init__(model.named_modules(), [optimizer])
        self._sharding, self._counters = sharding, counters

    def standing(self) -> Iterator[Holding]:
        """Yield weights, master copies and buffers; weights that are gathered for a while are temporary."""
        for holding in super().standing():
            gathered = self._sharding.weights and holding.component == "weights"
            yield holding._replace(component=GATHERED) if gathered else holding
        for part in self._sharding.weights:
            yield Holding(part, "weights")

    def gradients(self) -> Iterator[Holding]:
        """Yield the gradients that are there."""
        yield from super().gradients()
        for part in self._sharding.gradients.values():
            yield Holding(part, "gradients")

    def states(self) -> Iterator[Holding]:
        """Yield what the optimizer keeps of each parameter."""
        for holding in super().states():
            if self._counters or holding.tensor.dim():
                yield holding


class Training:
    """Steps of a planned model.

    Args:
        model: the model, its weights in the dtype of the layout.
        layout: the layout.
        choice: the optimizer.
        world_size: ranks, where the layout is sharded.
        on_cuda: do as torch does by default on a CUDA device.
    """

    def __init__(
        self, model: nn.Module, layout: Layout, choice: OptimizerChoice, world_size: int, *, on_cuda: bool
    ) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise AmpDoctorError(
                "the model has no parameter to train", hint="each has requires_grad=False, or none is there"
            )
        self.sharding = Sharding(model, layout, world_size)
        self._masters = [self._master(p) for p in self.parameters] if layout.master else []
        self._optimizer = choice.make(self._masters or self.parameters, on_cuda)
        counters = choice.counts_on_device or not on_cuda
        self.holdings = PlannedHoldings(model, self._optimizer, self.sharding, counters=counters)

    def _master(self, parameter: torch.Tensor) -> nn.Parameter:
        return nn.Parameter(torch.empty_like(self.sharding.trained(parameter.detach()), dtype=torch.float32))

    def first_step(self) -> None:
        """Make the optimizer's state, as the first step of a training does."""
        for parameter in self._masters or self.parameters:
            parameter.grad = torch.empty_like(parameter)
        self._update()
        self._optimizer.zero_grad(set_to_none=True)

    def _update(self) -> None:
        with AnyValue():  # some read norms
            self._optimizer.step()

    def step(self, ledger: Ledger) -> None:
        """Update the weights."""
        ledger.optimizer_begins()
        pairs = list(zip(self.parameters, self._masters, strict=False))
        for parameter, master in pairs:
            gradient = self.sharding.gradient(parameter)
            if gradient is not None:
                master.grad = gradient.to(torch.float32)
                number = ledger.storages.meet(master.grad, TEMPORARY, None, None)
                if number is not None:
                    ledger.storages.relabel(number, "gradients")
        self._update()
        with torch.no_grad():
            for parameter, master in pairs:
                self.sharding.trained(parameter.detach()).copy_(master)
        if pairs:
            self._optimizer.zero_grad(set_to_none=True)
