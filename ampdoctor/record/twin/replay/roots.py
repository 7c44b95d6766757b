"""Root modules: those that the training calls itself, not through another module. What has to be kept of their calls
is learnt from the calls of examined steps."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from ampdoctor.record.sites import parts
from ampdoctor.record.twin.replay.surroundings import HOSTS, drawn_between, host_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_WATCHED = 32
"""Parameters whose versions are looked at: an optimizer's step changes all that it trains."""

_MOST_MOVING_BYTES = 4 << 20


class Root:
    """One root module.

    Attributes:
        module: itself, weakly.
        draws: the generators outside torch that its calls draw from.
        devices: where its weights and buffers were when it was last looked at.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = weakref.ref(module)
        self.draws = HOSTS
        self.devices = _devices(module)
        self._learnt = False
        self._weights = [weakref.ref(p) for p in _spread(trained(module))]
        self._moving: list[weakref.ref[torch.Tensor]] = []
        self._before: tuple[dict[str, Any], list[tuple[torch.Tensor, int]]] | None = None

    def weight_versions(self) -> list[int]:
        """Return what changes when the weights do."""
        return [p._version for ref in self._weights if (p := ref()) is not None]

    def moving(self) -> list[tuple[weakref.ref[torch.Tensor], torch.Tensor]]:
        """Return copies of the small buffers that a call changes and that its result may depend on."""
        return [(ref, buffer.detach().clone()) for ref in self._moving if (buffer := ref()) is not None]

    def learn_before(self) -> None:
        """A call begins in an examined step."""
        module = self.module()
        if module is not None:
            self.devices = _devices(module)
            buffers = [(b, b._version) for b in _influential_buffers(module)]
            self._before = host_states(), buffers

    def learn_after(self) -> None:
        """It has ended: what does one call change?"""
        if self._before is None:
            return
        (states, buffers), self._before = self._before, None
        drawn = drawn_between(states, host_states())
        self.draws = self.draws | drawn if self._learnt else drawn
        self._learnt = True
        moved = [b for b, version in buffers if b._version != version]
        if sum(b.nbytes for b in moved) <= _MOST_MOVING_BYTES:
            self._moving = [weakref.ref(b) for b in moved]

    def learn_nothing(self) -> None:
        """The call was left by an exception, or the step is over."""
        self._before = None


def _devices(module: nn.Module) -> frozenset[torch.device]:
    return frozenset(
        tensor.device
        for part in modules_below(module)
        for kind in ("_parameters", "_buffers")
        for tensor in parts(part, kind).values()
        if tensor is not None
    )


def can_be_followed(module: nn.Module) -> bool:
    """Whether calls of `module` by the training itself can be executed again."""
    # DataParallel makes copies for every forward; they have no name, and the originals are not called.
    return not isinstance(module, torch.jit.ScriptModule) and "_is_replica" not in vars(module)


def trained(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that are trained, as far as they are there yet."""
    for part in modules_below(module):
        for parameter in parts(part, "_parameters").values():
            if parameter is not None and parameter.requires_grad and not is_lazy(parameter):
                yield parameter


def modules_below(module: nn.Module) -> list[nn.Module]:
    """Return `module` and all in it, each once."""
    found: dict[int, nn.Module] = {}
    stack = [module]
    while stack:
        one = stack.pop()
        if id(one) not in found:
            found[id(one)] = one
            stack += [m for m in parts(one, "_modules").values() if m is not None]
    return list(found.values())


def _influential_buffers(module: nn.Module) -> Iterator[torch.Tensor]:
    for part in modules_below(module):
        if isinstance(part, _NormBase):
            continue  # where they change, the result does not depend on them
        for buffer in parts(part, "_buffers").values():
            if buffer is not None and not is_lazy(buffer) and not buffer.is_inference():
                yield buffer


def _spread(parameters: Iterator[nn.Parameter]) -> list[nn.Parameter]:
    every = list(parameters)
    return every[:: -(-len(every) // _WATCHED) or 1]
