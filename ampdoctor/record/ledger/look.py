"""Which steps a ledger is kept of: an early one, once optimizer state is there, and now and then another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from ampdoctor.record.headroom import cuda_in_use
from ampdoctor.record.ledger.allocator import allocator_peaks
from ampdoctor.record.ledger.autocast import LedgerPlaces
from ampdoctor.record.ledger.holdings import Holdings
from ampdoctor.record.ledger.ledger import Ledger
from ampdoctor.record.ledger.rows import allocator_peak_rows, memory_rows, timing_rows
from ampdoctor.record.ledger.timings import Timings
from ampdoctor.record.live_objects import live_of_both
from ampdoctor.record.log import StepLog
from ampdoctor.record.twin.eager import compiles
from ampdoctor.record.twin.mode import TimeIsUpError, TwinMode
from ampdoctor.record.twin.obstacles import several_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.record.state import State
    from ampdoctor.record.twin.place import Places

FIRST = 4
"""The first step with a ledger: those before it are looked at for other reasons, and what is made once has been."""

_SHARE = 0.005
"""Largest share of the run's time for further ones."""

_STEP_SECONDS = 2.0
"""Most that following one step may take: a step of hundreds of micro-batches is given up."""


class LedgerLook:
    """Keeps ledgers, where nothing else of ours looks on.

    Args:
        state: what the parts of the recorder share.
        wanted: False where the user wants no second opinion of any kind: it sees each operation as those do.

    Attributes:
        places: told of each module as it begins and ends; None where no ledger is kept.
    """

    def __init__(self, state: State, *, wanted: bool = True) -> None:
        self._state = state
        self._due, self._failed = False, not wanted
        self._wall = self._spent = 0.0
        self._log: StepLog | None = None
        self._ledger: Ledger | None = None
        self._mode: TwinMode | None = None
        self._peaks: dict[int, int] = {}
        self.places: Places | None = None

    def begin(self, log: StepLog, *, busy: bool) -> None:
        """Keep one of the step of `log` if it is due; `busy` says that another mode of ours is in force."""
        self._due |= log.step == FIRST or (log.step > FIRST and log.examined and self._spent <= _SHARE * self._wall)
        if not self._due or busy or self._failed or compiles() or several_ranks():
            return
        self._due = False
        began = time.perf_counter()
        try:
            timings = Timings()
            self._log, self.places = log, LedgerPlaces(timings.autocast)
            optimizers = list(self._state.optimizers.live())
            self._ledger = Ledger(Holdings(self._state.sites.modules(), optimizers), timings)
            self._ledger.begin(_others())
            self._peaks = allocator_peaks() if cuda_in_use() else {}
            self._mode = TwinMode([self._ledger], self.places, self._fail, limit_s=_STEP_SECONDS)
            self._state.guard.set_beneath(self._mode)
        except Exception as error:  # noqa: BLE001 - a model of a kind that nobody thought of
            self.remove()
            self._fail(error)
        self._spent += time.perf_counter() - began

    def backward_begins(self, roots: Sequence[torch.Tensor]) -> None:
        """A backward pass is about to run."""
        if self._ledger is not None and self._following:
            try:
                self._ledger.backward_begins(roots)
            except Exception as error:  # noqa: BLE001 - nodes of the user's own
                self._fail(error)

    def optimizer_begins(self) -> None:
        """An optimizer is about to step."""
        if self._ledger is not None and self._ledger.timings is not None and self._following:
            self._ledger.timings.stepping = True
            try:
                self._ledger.optimizer_begins()
            except Exception as error:  # noqa: BLE001 - optimizers of the user's own
                self._fail(error)

    def optimizer_ended(self) -> None:
        """It has stepped."""
        if self._ledger is not None and self._ledger.timings is not None:
            self._ledger.timings.stepping = False

    def end(self, wall_seconds: float) -> None:
        """The step is over: queue what was seen of it."""
        self._wall += wall_seconds
        log, ledger, mode = self._log, self._ledger, self._mode
        if log is None or ledger is None or mode is None:
            return
        began = time.perf_counter()
        try:
            if self._following:
                self._queue(log, ledger)
        except Exception as error:  # noqa: BLE001 - nothing of a step is worth the recording
            self._fail(error)
        finally:
            self._spent += mode.seconds + time.perf_counter() - began
            self.remove()

    @property
    def _following(self) -> bool:
        return self._mode is not None and self._mode.on

    def _queue(self, log: StepLog, ledger: Ledger) -> None:
        ledger.end()
        peaks = allocator_peak_rows(log.step, self._peaks, ledger.allocated) if cuda_in_use() else ()
        for memory in (*memory_rows(ledger, log.step), *peaks):
            log.row("memory", lambda _, row=memory: row)  # type: ignore[misc]
        if ledger.timings is not None:
            for build in timing_rows(ledger.timings, log.step):
                log.row("timings", build)

    def remove(self) -> None:
        """Look no further."""
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.on = False
            self._state.guard.set_beneath(None)
        if self._ledger is not None:
            self._ledger.storages.release()
        self._log = self._ledger = self.places = None

    def _fail(self, error: Exception) -> None:
        """An error of ours ends this, and nothing else; a step that takes too long only itself."""
        self._failed = not isinstance(error, TimeIsUpError)
        if self._mode is not None:
            self._mode.on = False
        if self._state.guard.strict and not isinstance(error, (torch.cuda.OutOfMemoryError, TimeIsUpError)):
            raise error


def _others() -> Iterator[torch.Tensor]:
    """Yield the tensors that live in this process, but for numbers of ours that wait to be written."""
    logs, tensors = live_of_both(StepLog, torch.Tensor)
    ours = {id(vector) for log in logs for vector in log.kept}
    for tensor in tensors:
        if id(tensor) not in ours and not tensor.is_meta:
            yield tensor
