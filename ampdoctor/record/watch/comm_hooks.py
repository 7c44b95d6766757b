"""Hooks that say in what form gradients are sent to other ranks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

from ampdoctor.record.watch.base import Watcher

if TYPE_CHECKING:
    from ampdoctor.record.patching import Patches


class CommHooks(Watcher):
    """Watches DistributedDataParallel.register_comm_hook; rows of `calls` with the hook's name as target."""

    def install(self, patches: Patches) -> None:
        """Wrap it."""
        safe = self._guarded
        patches.around(DistributedDataParallel, "register_comm_hook", safe(self._before), safe(self._log.finish))

    def _before(self, _: Any, state: Any, hook: Any) -> dict[str, Any]:
        return self._log.begin("comm_hook", _name(state, hook))


def _name(state: Any, hook: Any) -> str:
    """Return the hook's name; a wrapper of torch's (fp16_compress_wrapper) names what it wraps nowhere."""
    while isinstance(hook, partial):
        hook = hook.func
    name = str(getattr(hook, "__qualname__", None) or type(hook).__name__)
    kind = type(state).__name__
    return f"{name} ({kind})" if kind == "PowerSGDState" else name.replace(".<locals>", "")
