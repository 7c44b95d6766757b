"""Root modules that are never called an additional time: several devices or ranks take part in their calls."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from ampdoctor.record.twin.replay.roots import modules_below

if TYPE_CHECKING:
    from torch import nn

_OF_SEVERAL = frozenset(
    {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine"}
)  # fmt: skip
"""Classes whose calls several devices take part in."""


class Refusals:
    """The roots that are refused, and all in them: none of their calls is kept."""

    def __init__(self) -> None:
        self._roots: list[tuple[weakref.ref[nn.Module], str]] = []
        self._parts: dict[int, weakref.ref[nn.Module]] = {}

    @property
    def reason(self) -> str | None:
        """Why the calls of a living root are not kept; None where all are."""
        return next((reason for root, reason in self._roots if root() is not None), None)

    def refuse(self, module: nn.Module) -> bool:
        """Whether `module`, which is being called by the training itself, is to be left alone."""
        if self.covers(module):
            return True
        reason = several_ranks() or _of_several(module)
        if reason is None:
            return False
        self._roots = [(root, why) for root, why in self._roots if root() is not None]
        self._roots.append((weakref.ref(module), reason))
        self._parts = {key: part for key, part in self._parts.items() if part() is not None}
        self._parts |= {id(part): weakref.ref(part) for part in modules_below(module)}
        return True

    def covers(self, module: nn.Module) -> bool:
        """Whether `module` is or lies in a refused root."""
        known = self._parts.get(id(module))
        return known is not None and known() is module

    def clear(self) -> None:
        """Forget all."""
        self._roots.clear()
        self._parts.clear()


def several_ranks() -> str | None:
    """Return why nothing is executed again in this process, None where it trains alone."""
    distributed = torch.distributed
    together = distributed.is_available() and distributed.is_initialized()
    if together and distributed.get_world_size() > 1:
        return "several ranks train together, and the others would not take part"
    return None


def _of_several(module: nn.Module) -> str | None:
    for part in modules_below(module):
        for kind in type(part).__mro__:
            if kind.__name__ in _OF_SEVERAL:
                return f"{kind.__name__} may not be called an additional time"
    return None
