"""What one rank of several keeps of weights and gradients that are spread over all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.record.planning.layouts import GRADIENTS, OPTIMIZER, WEIGHTS
from ampdoctor.record.tensors import tensors_in

if TYPE_CHECKING:
    from typing import Any

    import torch
    from torch import nn

    from ampdoctor.record.ledger.storages import Storages
    from ampdoctor.record.planning.layouts import Layout

GATHERED = "gathered"
"""The component of whole weights where each rank keeps a part: they are there for the time that a module needs them."""


class Sharding:
    """The share of one rank: of each parameter 1/n, rounded up.

    Args:
        model: the model, whole.
        layout: says what is sharded.
        world_size: ranks.

    Attributes:
        weights: this rank's part of each parameter, where weights are spread.
        gradients: its part of each gradient so far, where those are.
    """

    def __init__(self, model: nn.Module, layout: Layout, world_size: int) -> None:
        self._sharded, self._world_size = layout.sharded, world_size
        self.gradients: dict[torch.Tensor, torch.Tensor] = {}
        self.weights: list[torch.Tensor] = []
        self._gathered: list[torch.Tensor] = []
        self._storages: Storages | None = None
        if WEIGHTS in self._sharded:
            self.weights = [self._part(p.detach()).clone() for p in model.parameters()]
            for module in model.modules():
                self._gather_around(module)
        if GRADIENTS in self._sharded:
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(self._reduce)

    def trained(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the part of a parameter, or of its gradient, that this rank's optimizer works on."""
        return self._part(tensor) if OPTIMIZER in self._sharded else tensor

    def gradient(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return the part of its gradient that this rank's optimizer works on."""
        if GRADIENTS in self._sharded:
            return self.gradients.get(parameter)
        return None if parameter.grad is None else self.trained(parameter.grad)

    def begin(self, storages: Storages, model: nn.Module) -> None:
        """The step begins: whole weights are there only while a module needs them."""
        if self.weights:
            self._storages = storages
            for parameter in model.parameters():
                self._resize(parameter, 0)

    def end_pass(self) -> None:
        """Forward or backward is over."""
        self._scatter()

    def _part(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(-1)[: -(-tensor.numel() // self._world_size)]

    def _reduce(self, parameter: torch.Tensor) -> None:
        """A gradient is complete: after it has been summed over the ranks, each keeps its part."""
        if parameter.grad is not None:
            self.gradients[parameter] = self._part(parameter.grad).clone()
            parameter.grad = None

    def _gather_around(self, module: nn.Module) -> None:
        own: list[torch.Tensor] = [p for p in module._parameters.values() if p is not None]
        if not own:
            return

        def gather(*_: Any) -> None:
            self._gather(own)

        def done(_module: nn.Module, _args: Any, output: Any) -> None:
            self._scatter()
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(gather)  # its gradient is there: the module's backward is next

        module.register_forward_pre_hook(gather)
        module.register_forward_hook(done)

    def _gather(self, parameters: list[torch.Tensor]) -> None:
        self._scatter()
        self._gathered = parameters
        for parameter in parameters:
            self._resize(parameter, parameter.untyped_storage().nbytes())

    def _scatter(self) -> None:
        for parameter in self._gathered:
            self._resize(parameter, 0)
        self._gathered = []

    def _resize(self, parameter: torch.Tensor, size: int) -> None:
        """In the ledger only: the weights of a fake model take no memory."""
        if self._storages is not None:
            number = self._storages.meet(parameter, GATHERED, None, None)
            if number is not None:
                self._storages.resize(number, size)
