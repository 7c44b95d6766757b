"""Optimizers that get their state back: the training goes on where another one, or an earlier part, had stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.watch.base import Watcher

if TYPE_CHECKING:
    from ampdoctor.record.patching import Patches


class Checkpoints(Watcher):
    """Watches `Optimizer.load_state_dict`; that of scalers is watched with their other calls."""

    def install(self, patches: Patches) -> None:
        """Put its wrappers in place."""
        before = self._guarded(self._before)
        after = self._guarded(self._log.finish)
        patches.around(torch.optim.Optimizer, "load_state_dict", before, after)

    def _before(self, optimizer: Any, state: Any = None, *_: Any, **named: Any) -> dict[str, Any]:
        held = _held(named.get("state_dict", state))
        return self._log.begin("load_state", self._state.optimizers.name(optimizer), entries=held)


def _held(state: Any) -> int | None:
    """Return of how many parameters something is kept; None where it is no state dict as torch has it."""
    kept = dict.get(state, "state") if isinstance(state, dict) else None
    return len(kept) if isinstance(kept, dict) else None
