"""Gradients that are cleared by the module that holds the parameters, and not by their optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from ampdoctor.record.groups import parameters_of
from ampdoctor.record.watch.base import Watcher

if TYPE_CHECKING:
    from ampdoctor.record.patching import Patches


class ModuleZeroGrad(Watcher):
    """Watches `nn.Module.zero_grad`: one row for each optimizer that has all its parameters in the module."""

    def install(self, patches: Patches) -> None:
        """Put its wrappers in place."""
        safe = self._guarded
        patches.around(nn.Module, "zero_grad", safe(self._before), safe(self._after))

    def _before(self, module: Any, *_: Any, **__: Any) -> list[dict[str, Any]]:
        self._state.copies.record()
        own = {id(p) for p in nn.Module.parameters(module)}
        names = [
            self._state.optimizers.name(optimizer)
            for optimizer in list(self._state.optimizers.live())
            if all(id(p) in own for p in parameters_of(optimizer))
        ]
        return [self._log.begin("zero_grad", name) for name in names]

    def _after(self, calls: list[dict[str, Any]] | None, _: Any, error: BaseException | None) -> None:
        for call in calls or ():
            self._log.finish(call, None, error)
