"""What a watcher is: it wraps the functions of one kind, and queues a row of `calls` for each use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

        Every wrapper is made safe by `state.guarded` (see `CallWatch.install`): it returns None when the recorder is
        off, and never raises into the training.
        """

    def remove(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of what it holds."""
