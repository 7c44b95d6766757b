"""Notes the exceptions that leave an autocast block, caught further out or not."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.watch.base import Watcher

if TYPE_CHECKING:
    from ampdoctor.record.patching import Patches


class Exceptions(Watcher):
    """Wraps the end of `with torch.autocast`; modules, wrapped calls and the end of the script tell of theirs."""

    def install(self, patches: Patches) -> None:
        """Put the wrapper in place."""
        leave = torch.autocast.__exit__
        noted = self._guarded(self._log.noted)
        raised = self._log.raised

        @wraps(leave)
        def wrapper(block: Any, kind: Any = None, error: Any = None, trace: Any = None) -> Any:
            # On every step: nothing but two attributes where all is well.
            if getattr(block, "_enabled", False):
                raised.left_autocast = getattr(block, "fast_dtype", None)
            if error is not None:
                noted(error)
            return leave(block, kind, error, trace)

        patches.replace(torch.autocast, "__exit__", wrapper)
