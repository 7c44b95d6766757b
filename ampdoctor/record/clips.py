"""The clippings of torch.nn.utils: their limits, and the norms they were made by."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.groups import given_parameters
from ampdoctor.record.tensors import tensors_in

if TYPE_CHECKING:
    from ampdoctor.record.call_log import CallLog
    from ampdoctor.record.held_gradients import HeldGradients
    from ampdoctor.record.patching import Patches
    from ampdoctor.record.scaler import ScalerEvents
    from ampdoctor.record.state import State

Call = dict[str, Any]


class Clips:
    """Watches the functions that clip gradients."""

    def __init__(self, state: State, log: CallLog, scalers: ScalerEvents, held: HeldGradients) -> None:
        self._state, self._log = state, log
        self._scalers, self._held = scalers, held
        self._under_way = False

    def install(self, patches: Patches) -> None:
        """Put the wrappers in place."""
        utils, guarded = torch.nn.utils, partial(self._state.guarded, claim=False)
        around = partial(patches.around, utils, everywhere=True)
        around("clip_grad_norm_", guarded(self._before_norm), guarded(self._after))
        around("clip_grad_value_", guarded(self._before_value), guarded(self._after))
        if hasattr(utils, "clip_grads_with_norm_"):  # torch 2.6
            around("clip_grads_with_norm_", guarded(self._before_with_norm), guarded(self._after))

    def _before_norm(self, parameters: Any, max_norm: Any = None, *_: Any, **__: Any) -> Call | None:
        return self._begin("clip_norm", parameters, max_norm)

    def _before_value(self, parameters: Any, clip_value: Any = None, *_: Any, **__: Any) -> Call | None:
        return self._begin("clip_value", parameters, clip_value)

    def _before_with_norm(
        self, parameters: Any, max_norm: Any = None, total_norm: Any = None, *_: Any, **__: Any
    ) -> Call | None:
        call = self._begin("clip_norm", parameters, max_norm)
        if call is not None:
            self._take_norm(call, total_norm)
        return call

    def _begin(self, kind: str, parameters: Any, limit: Any) -> Call | None:
        """Return the columns of the call; None for one that another clipping makes."""
        if self._under_way:
            return None
        self._under_way = True
        self._state.copies.record()
        owner = self._owner_of(parameters)
        if owner is not None:
            self._state.weights.gradients(owner, scaled=self._scalers.any_scaled(owner))
        name = self._state.optimizers.name(owner) if owner is not None else None
        return self._log.begin(kind, name, limit=self._state.log.scalar(limit))

    def _after(self, call: Call | None, result: Any, error: BaseException | None) -> None:
        if call is None:
            return
        self._under_way = False
        self._take_norm(call, result)
        self._held.left()
        self._log.finish(call, None, error)

    def _take_norm(self, call: Call, norm: Any) -> None:
        if isinstance(norm, torch.Tensor):
            call["norm"] = self._state.log.grad_norm = self._state.log.scalar(norm)

    def _owner_of(self, parameters: Any) -> torch.optim.Optimizer | None:
        """Return the optimizer that trains the first of `parameters`."""
        first = next(tensors_in(given_parameters(parameters)), None)
        candidates = list(self._state.optimizers.live())
        if first is None:
            return candidates[0] if len(candidates) == 1 else None
        owner = self._state.optimizers.owner(first)
        return next((o for o in candidates if self._state.optimizers.name(o) == owner), None)
