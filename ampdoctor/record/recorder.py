"""The recorder's life: start, one step after another, stop. It owns every handle and fails open.

What is judged is judged elsewhere; here facts are put in order. Training must come out the same to the bit, and an
error of ours ends the recording and nothing else.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.alarms import Alarms
from ampdoctor.record.calls import CallWatch
from ampdoctor.record.collector import Collector
from ampdoctor.record.environment import is_one_of_many
from ampdoctor.record.forks import forget_in_children
from ampdoctor.record.guard import Guard, told
from ampdoctor.record.headroom import cuda_in_use, device_in_use
from ampdoctor.record.log import StepLog
from ampdoctor.record.looks import Looks
from ampdoctor.record.modules import ModuleHooks
from ampdoctor.record.optimizer import OptimizerNames, WeightExaminer
from ampdoctor.record.patching import Patches
from ampdoctor.record.run_folder import RunFolder
from ampdoctor.record.scaler import ScalerEvents
from ampdoctor.record.schedule import Schedule
from ampdoctor.record.sites import Sites
from ampdoctor.record.state import State
from ampdoctor.record.stats import warm_up
from ampdoctor.record.step_ends import StepEnds
from ampdoctor.record.step_row import step_row
from ampdoctor.record.tensor_log import TensorLog
from ampdoctor.record.twin.opinions import Proving, SecondOpinions
from ampdoctor.record.working_copies import WorkingCopies
from ampdoctor.trace.schema import StepRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from ampdoctor.record.transfer import Transfer

_log = logging.getLogger("ampdoctor")

STRICT_VARIABLE = "AMPDOCTOR_STRICT"
"""Environment variable that makes errors of ours raise, for tests."""


class Recorder:
    """Records a training into a run folder.

    Use it as a context manager or by `start` and `stop`. Step boundaries are found by themselves, from the
    optimizers' steps; a loop that has none calls `step`.

    Args:
        folder: an empty run folder (`trace.writer.prepare_folder`).
        model: the model, or several by name; None to find them.
        optimizer: an optimizer to know from the start; others are found.
        scaler: a GradScaler to know from the start; others are found.
        every: examine each `every`-th step; None for the default schedule.
        budget: largest share of wall time that examinations may take under the default schedule.
        sample_above: draw a sample of tensors on the CPU with more elements than that; None to count all.
        prove: second opinions on every examined step; False for none, None for those that are worth it.
        strict: raise errors of ours instead of detaching; None for what AMPDOCTOR_STRICT says.
        lead: whether this process writes run.json; None where it does as rank 0.
        on_open: called with the folder once recording has begun.
        on_close: called with the folder once it is complete.
    """

    def __init__(  # noqa: PLR0913 - what a user may say, all by keyword
        self,
        folder: Path,
        *,
        model: nn.Module | Mapping[str, nn.Module] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        scaler: Any = None,
        every: int | None = None,
        budget: float = 0.03,
        sample_above: int | None = None,
        prove: bool | None = None,
        strict: bool | None = None,
        lead: bool | None = None,
        on_open: Callable[[Path], None] | None = None,
        on_close: Callable[[Path], None] | None = None,
    ) -> None:
        if strict is None:
            strict = os.environ.get(STRICT_VARIABLE, "") not in ("", "0")
        self.folder = folder
        self._on_open, self._on_close = on_open, on_close
        self._given = optimizer, scaler
        settings = {"every": every, "budget": budget, "sample_above": sample_above}
        self._run = RunFolder(folder, settings, lead=lead, step=lambda: self._state.log.step)
        self._schedule = Schedule(every, budget, in_step=is_one_of_many)
        self._alarms, self._sample_above = Alarms(), sample_above
        self._guard = Guard(self._fail, strict=strict)
        roots = {"": model} if isinstance(model, nn.Module) else model
        sites = Sites(roots)
        self._state = State(self._guard, sites, OptimizerNames(), WeightExaminer(sites))
        self._ends = StepEnds(self._state, self._end_step)
        self._opinions = self._state.opinions = SecondOpinions(Proving.of(prove), self._state)
        self._looks = self._state.looks = Looks(self._state, wanted=prove is not False)
        self._opinions.lent = self._looks.roundings.lend
        self._state.copies = WorkingCopies(self._state)
        self._scalers = ScalerEvents(self._state)
        self._calls = CallWatch(self._state, self._scalers, self._ends)
        self._modules = self._state.modules = ModuleHooks(self._state, self._calls.noted)
        self._exit, self._collector = Patches(), Collector()
        self._under_way: deque[tuple[StepLog, Transfer]] = deque()
        self._failed = self._stopped = False
        self._clock = time.perf_counter()

    def start(self) -> Self:
        """Begin to record: everything is in place when this returns.

        Raises:
            AmpDoctorError: it has stopped before; a recorder records one run.
        """
        if self._state.active or self._failed:
            return self
        if self._stopped:
            raise AmpDoctorError("this recorder has stopped", hint="call ampdoctor.watch again")
        self._state.active = True
        with self._guard:
            self._clock = time.perf_counter()
            self._modules.install()
            self._begin(0)
            optimizer, scaler = self._given
            if optimizer is not None:
                self._state.optimizers.name(optimizer)
            if scaler is not None:
                self._scalers.name(scaler)
            self._calls.install()
            self._exit.around(os, "_exit", lambda *_: self._run.hurry(), lambda *_: None)
            atexit.register(self.stop)
            forget_in_children(self)
        return self

    def is_over(self, steps: int | None) -> bool:
        """Whether it has stopped, or recorded so many steps."""
        return not self._state.active or (steps is not None and self._state.log.step >= steps)

    def stop(self, *, exception: str | None = None) -> None:
        """Write what is left, take every hook off and complete the run folder."""
        if not self._state.active:
            self._calls.step_hooks.remove()  # given up within a step, when they could not go
            return
        self._stopped = True
        with self._guard:
            self._drain(wait=True)
            # A step under way has calls and perhaps an exception to tell, but no end of its own.
            left = self._state.log
            if left.has_rows or left.begun:
                self._looks.end()
                self._run.open()
                self._run.write(left.finish(left.depart()), soon=True)
        if self._state.active:
            self._detach()
            with self._guard:
                status = "complete" if exception is None else "crashed"
                self._run.close(status=status, exception=exception)
        self._tell(self._on_close)

    def step(self) -> None:
        """End the step at hand, for loops whose steps can't be found by themselves."""
        if self._state.active:
            with self._guard:
                self._ends.asked()

    def prove(self) -> None:
        """Give a second opinion on the next step, whatever it costs."""
        self._opinions.ask()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.noted(error)
        self.stop(exception=None if error is None else told(error))

    def noted(self, error: BaseException) -> None:
        """Take note of the exception that ends the script, if it has trained."""
        with self._guard:
            if self._state.active and (self._state.log.has_rows or self._run.claimed):
                self._calls.noted(error)

    def _begin(self, step: int) -> None:
        reason = self._schedule.reason(step)
        second = self._opinions.reason(step, reason)
        reason = reason or second
        log = self._state.log = StepLog(step, reason)
        if second is not None:
            self._opinions.begin(log, second)
        opinion = self._opinions.current
        looked_at = self._looks.begin(log, busy=opinion is not None)
        self._state.tensors = None
        self._collector.turn(many=looked_at or reason is not None)
        places = opinion.places if opinion else self._looks.places
        if reason is None:
            self._state.weights.arm(None)
            self._modules.arm(None, places)
            return
        self._state.tensors = TensorLog(log, opinion.observe if opinion else None, self._sample_above)
        self._state.weights.arm(self._state.tensors, opinion.gradients if opinion else None)
        self._modules.arm(self._state.tensors, places)

    def _end_step(self) -> None:
        """Send the step's numbers on their way and begin the next one."""
        if self._run.claimed is None and self._run.open():
            self._tell(self._on_open)
        if not self._state.active:  # the callback has failed, or stopped us
            return
        if not self._run.claimed:
            self._detach()
            return
        if self._state.log.step == 0 and cuda_in_use():
            warm_up(device_in_use())  # between two steps; it counts for the first, like all that is done once
        began, self._clock = self._clock, time.perf_counter()
        wall = self._clock - began
        self._opinions.end(wall)
        self._looks.end(wall)
        log, spent = self._state.log, self._guard.take_seconds()
        held = self._state.held_graphs.before(log.step)
        log.row("steps", step_row(log, wall, spent, held))
        # What the first step takes, to find modules and to warm up, no schedule can save.
        self._schedule.account(wall, spent if log.step else 0.0, examined=log.examined)
        self._under_way.append((log, log.depart()))
        following = log.step + 1
        del log  # and with it the rows, unless they still wait for their numbers
        self._drain()
        self._begin(following)

    def _drain(self, *, wait: bool = False) -> None:
        """Write the steps whose numbers have arrived."""
        while self._under_way and (wait or self._under_way[0][1].ready()):
            log, transfer = self._under_way.popleft()
            finished = log.finish(transfer)
            self._run.write(finished, soon=log.examined)
            following = self._state.log.step + 1
            self._opinions.learn(finished, following)
            for _, row in finished.rows:
                if isinstance(row, StepRow):
                    for kind in self._alarms.check(row):
                        self._schedule.alarm(kind, following)
                        self._opinions.alarm(kind, following)
                        self._opinions.missed(kind, row.step)

    def _fail(self, error: Exception) -> None:
        if self._failed:
            return
        self._failed = True
        self._detach()
        reason = told(error)
        self._run.abandon(reason)
        if not self._guard.strict:
            _log.warning("ampdoctor stopped recording, the training goes on: %s", reason)

    def _detach(self) -> None:
        self._state.active = False
        self._state.tensors = None
        self._collector.let_go()
        self._opinions.abandon()
        self._looks.abandon()
        self._state.weights.arm(None)
        self._modules.remove()
        self._calls.remove()
        self._exit.undo()
        self._under_way.clear()
        atexit.unregister(self.stop)

    def disown(self) -> None:
        """In a forked child, a data loader's worker for instance: record nothing, write nothing."""
        self._run.disown()
        if self._state.active:
            self._detach()

    def _tell(self, callback: Callable[[Path], None] | None) -> None:
        if callback is not None:
            with self._guard:
                callback(self.folder)
