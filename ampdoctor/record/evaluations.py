"""Evaluations on steps that nobody examines: they often come after the last step, or between two examined ones.

What they run under an autocast block that was entered without gradients is recorded like that of an examined step, once
for each line that enters one: module by module, and nothing of the training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ampdoctor.record.tensor_log import TensorLog

if TYPE_CHECKING:
    from ampdoctor.record.callsite import CallSite
    from ampdoctor.record.state import State

_MOST = 4
"""Evaluations looked at in a run: each takes as long as an examination of a forward pass."""


class Evaluations:
    """Decides which blocks are looked at, and has their modules recorded."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: set[CallSite] = set()
        self._looks = 0
        self._looking: int | None = None

    def may_begin(self) -> bool:
        """Whether a block that was entered just now may be one to look at: asked often, so it costs next to nothing."""
        return self._looks < _MOST and not torch.is_grad_enabled() and not self._state.blocks.depth

    def begin(self, site: CallSite) -> bool:
        """Whether the modules of the block that was entered at `site` are recorded from now on."""
        if site in self._known:
            return False
        self._known.add(site)
        if self._state.modules is None:
            return False
        self._looks += 1
        self._looking = self._state.log.step
        self._state.modules.arm(TensorLog(self._state.log))
        return True

    def seen(self, site: CallSite) -> None:
        """A block was entered at `site` on an examined step."""
        self._known.add(site)

    def end(self) -> None:
        """An outermost block was left."""
        if self._looking == self._state.log.step and self._state.modules is not None:
            self._state.modules.disarm()
        self._looking = None
