"""Modules that another thread than the one that trains calls: autocast does not reach into it.

A data-parallel loop, or a pool of workers, runs the model in threads of its own, while the loss, backward and the
optimizer stay where they are. What happens elsewhere is not followed, but that it happens is worth a row.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.call_log import CallLog
from ampdoctor.record.quiet import traced
from ampdoctor.record.sites import parts
from ampdoctor.record.tensors import autocast_dtype, dtype_name, tensors_in

if TYPE_CHECKING:
    from torch import nn

    from ampdoctor.record.state import State

_MOST = 16
"""Modules told of in a step."""


class OtherThreads:
    """Queues a row for the first call of each such module in an examined step."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._log = CallLog(state)
        self._step = -1
        self._told: set[str] = set()

    def called(self, module: nn.Module, output: Any) -> None:
        """A module was called that is none of ours."""
        state = self._state
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or state.replaying:
            return
        if traced() or state.guard.thread.is_this(claim=False):
            return
        weights = [p for p in parts(module, "_parameters").values() if p is not None]
        made = next(tensors_in(output), None)
        if made is None or not any(p.requires_grad for p in weights):
            return
        with state.guard:
            self._tell(state.sites.path(module), weights, made)

    def _tell(self, path: str, weights: list[torch.Tensor], made: torch.Tensor) -> None:
        step = self._state.log.step
        if self._step != step:
            self._step = step
            self._told.clear()
        if path in self._told or len(self._told) >= _MOST:
            return
        self._told.add(path)
        call = self._log.begin("threaded_call", path, device_type=made.device.type, dtype=dtype_name(made.dtype))
        call["autocast"] = autocast_dtype(made.device.type)
        call["reached"] = [weakref.ref(p) for p in weights]
        self._log.finish(call)
