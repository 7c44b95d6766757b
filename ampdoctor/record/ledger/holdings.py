"""What a training holds from step to step: weights, master copies, gradients, optimizer state, buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from ampdoctor.record.groups import parameters_of, state_of
from ampdoctor.record.sites import parts
from ampdoctor.record.tensors import HALVES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import nn

_MASTER = ("master", "fp32_param", "float32_param")
"""Words in the names that optimizers give to an FP32 copy of a weight among their state."""


class Holding(NamedTuple):
    """A tensor that a training holds, and what it is."""

    tensor: torch.Tensor
    component: str
    kind: str | None = None
    module: str | None = None


class Holdings:
    """Those of the models and optimizers at hand.

    Args:
        modules: every module, with its path; each once.
        optimizers: those that train them.
    """

    def __init__(self, modules: Iterable[tuple[str, nn.Module]], optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self._modules = list(modules)
        self._optimizers = list(optimizers)
        self._in_modules = {id(p) for _, m in self._modules for p in _tensors(m, "_parameters")}

    def standing(self) -> Iterator[Holding]:
        """Yield weights, master copies and buffers."""
        half = False
        for path, module in self._modules:
            for parameter in _tensors(module, "_parameters"):
                half |= parameter.dtype in HALVES
                yield Holding(parameter, "weights", module=path)
        for parameter in self._trained():
            if id(parameter) not in self._in_modules:
                # What no module holds is trained in place of what one holds in half.
                master = half and parameter.dtype == torch.float32
                yield Holding(parameter, "master_weights" if master else "weights")
        # Last, for one may be a view of a weight.
        for path, module in self._modules:
            for buffer in _tensors(module, "_buffers"):
                yield Holding(buffer, "buffers", module=path)

    def gradients(self) -> Iterator[Holding]:
        """Yield the gradients that are there."""
        parameters = [p for _, m in self._modules for p in _tensors(m, "_parameters")]
        for parameter in [*parameters, *self._trained()]:
            if parameter.grad is not None:
                yield Holding(parameter.grad, "gradients")

    def states(self) -> Iterator[Holding]:
        """Yield what the optimizers keep of each parameter."""
        for optimizer in self._optimizers:
            for parameter in parameters_of(optimizer):
                for name, value in state_of(optimizer, parameter).items():
                    if isinstance(value, torch.Tensor):
                        master = any(word in str(name) for word in _MASTER)
                        yield Holding(value, "master_weights" if master else "optimizer", str(name))

    def _trained(self) -> Iterator[torch.Tensor]:
        for optimizer in self._optimizers:
            yield from parameters_of(optimizer)


def _tensors(module: nn.Module, kind: str) -> list[torch.Tensor]:
    return [t for t in parts(module, kind).values() if isinstance(t, torch.Tensor)]
