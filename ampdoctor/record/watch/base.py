"""What a watcher is: it wraps the functions of one kind, and queues a row of `calls` for each use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.call_log import CallLog
    from ampdoctor.record.patching import Patches
    from ampdoctor.record.state import State


class Watcher(ABC):
    """Watches one kind of call for as long as the recorder records.

    Args:
        state: what the parts of the recorder share.
        log: where its calls go.
    """

    def __init__(self, state: State, log: CallLog) -> None:
        self._state = state
        self._log = log

    @abstractmethod
    def install(self, patches: Patches) -> None:
        """Put its wrappers in place; whoever owns `patches` takes them off again.

        Every wrapper is made safe by `_guarded`: it returns None when the recorder is off, and never raises into the
        training.
        """

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` made safe to call from inside the training.

        Its calls don't make their thread the one that is followed: what is watched here is done while a training is
        built too, and another thread may train. Backward passes and steps of scalers and optimizers tell which one.
        """
        return self._state.guarded(function, claim=False)

    def remove(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of what it holds."""
