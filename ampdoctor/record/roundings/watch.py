"""When roundings are watched: from the start to the end of the first step, and on later steps where they may drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ampdoctor.record.patching import Patches
from ampdoctor.record.roundings.follower import Roundings
from ampdoctor.record.twin.eager import compiles
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.place import Places

if TYPE_CHECKING:
    from ampdoctor.record.log import StepLog
    from ampdoctor.record.state import State


class RoundingWatch:
    """Lays a mode beneath the training that sees its operations, and takes it off again.

    Only operations on the CPU are looked at, and compiled code is left alone: a mode would keep it from being compiled.

    Args:
        state: what the parts of the recorder share.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._patches = Patches()
        self._narrow = self._failed = self._whole = False
        self._log: StepLog | None = None
        self._follower: Roundings | None = None
        self._mode: TwinMode | None = None
        self.places: Places | None = None

    def begin(self, log: StepLog, *, busy: bool) -> None:
        """Watch the step of `log` if it is one to watch; `busy` says that another mode of ours lies there."""
        wanted = log.step == 0 or (self._narrow and log.examined)
        if not wanted or busy or self._failed or compiles():
            return
        self._log, self._follower, self._whole = log, Roundings(self._enough), True
        self.places = Places(lines=False)
        self._mode = TwinMode([self._follower], self.places, self._fail)
        compiling = self._state.guarded(self._enough)
        self._patches.around(torch, "compile", lambda *_, **__: compiling(), lambda *_: None)
        self._state.guard.set_beneath(self._mode)

    def lend(self) -> Roundings | None:
        """Another mode of ours is laid there in the middle of the step: what looks on goes on looking beneath that."""
        if self._mode is None or self._follower is None:
            return None
        self._mode.on, self._mode = False, None
        return self._follower

    def end(self) -> None:
        """The step is over: queue what was seen of it."""
        log, follower = self._log, self._follower
        self._take_off()
        if log is not None and follower is not None and not self._failed:
            follower.rows.queue(log, follower.operations if self._whole else None)
            self._narrow = follower.narrow or (self._narrow and log.step > 0)
        self._log = self._follower = self.places = None

    def abandon(self) -> None:
        """The recorder stops in the middle of a step."""
        self._failed = True
        self.end()

    def _enough(self) -> None:
        """Look no further in this step."""
        self._whole = False
        self._take_off()

    def _take_off(self) -> None:
        self._patches.undo()
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.on = False
            self._state.guard.set_beneath(None)
        if self._follower is not None:
            self._follower.release()

    def _fail(self, error: Exception) -> None:
        """An error of ours ends this, and nothing else."""
        self._failed = True
        self._take_off()
        if self._state.guard.strict and not isinstance(error, torch.cuda.OutOfMemoryError):
            raise error
