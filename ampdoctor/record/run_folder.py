"""The recorder's end of the run folder: claimed by one process per rank, opened late, written in the background."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ampdoctor.record.background import BackgroundWriter, Step
from ampdoctor.record.environment import describe_run, rank
from ampdoctor.record.telemetry.sampler import GpuTelemetry
from ampdoctor.record.twin.eager import compiles
from ampdoctor.trace.info import FILE_NAME, RunInfo, write_info
from ampdoctor.trace.writer import CLAIM, TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ampdoctor.record.log import Finished


class RunFolder:
    """Opens the folder when there is something to say.

    A launcher such as torchrun runs under the recorder as well as the training that it starts: whoever trains first
    claims the folder (per rank), and the others stay silent.

    Args:
        path: the folder.
        recording: the settings, for run.json.
        lead: whether this process writes run.json; None where it does as rank 0.
        step: returns the step under way, for what is sampled beside the steps.
    """

    def __init__(
        self, path: Path, recording: dict[str, Any], *, lead: bool | None = None, step: Callable[[], int] = int
    ) -> None:
        self.path = path
        self.rank = 0
        self._leads = lead
        self._recording = recording
        self._writer: BackgroundWriter | None = None
        self._info: RunInfo | None = None
        self._step = step
        self._telemetry: GpuTelemetry | None = None
        self._orphan: BackgroundWriter | None = None
        self.claimed: bool | None = None

    def open(self) -> bool:
        """Claim the folder; returns False where another process has it."""
        if self.claimed is None:
            self.rank = rank()  # by now there is a process group, if there will be one
            self._leads = self.rank == 0 if self._leads is None else self._leads
            self.claimed = self._claim()
            if self.claimed:
                self._info = RunInfo(started=time.time(), pid=os.getpid())
                self._info = describe_run(self._recording)
                self._write_info()
                self._writer = BackgroundWriter(TraceWriter(self.path, self.rank))
        return self.claimed

    def write(self, finished: Finished, *, soon: bool) -> None:
        """Have the rows of a step written, soon or within seconds."""
        if self._writer is not None:
            batches = [tensors.batch() for tensors in finished.tensors]
            self._writer.put(Step(finished.rows, batches), soon=soon)
            if soon:
                self._note_compiled()
            self._look_at_gpus(self._writer)

    def hurry(self) -> None:
        """The process is about to end without a word: write what waits. Never raises, lest it goes on."""
        with suppress(BaseException):
            if self._writer is not None:
                self._writer.hurry()

    def close(self, **changes: Any) -> None:
        """End the streams and stamp the final state into run.json."""
        if self._writer is not None and self._info is not None:
            self._leave_gpus()
            self._writer.close()
            self._info = replace(self._info, ended=time.time(), **changes)
            self._write_info()
            self._writer = self._info = None

    def abandon(self, reason: str) -> None:
        """Leave the folder as it is, marked degraded where that can still be written. Never raises."""
        with suppress(Exception):
            # What fails before the first step has ended has a folder to say so in, but for a worker of the training's.
            if self.claimed is None and multiprocessing.parent_process() is None:
                self.open()
        with suppress(Exception):
            self._leave_gpus()
        with suppress(Exception):
            if self._info is not None:
                self._info = replace(self._info, status="degraded", degraded=reason)
                self._write_info()
        with suppress(Exception):
            if self._writer is not None:
                self._writer.abandon()
        self._writer = self._info = None

    def disown(self) -> None:
        """In a forked child: the files belong to the parent. Kept alive, so that nothing closes them here."""
        self._orphan, self._writer, self._info = self._writer, None, None
        if self._telemetry is not None:
            self._telemetry.disown()
        self.claimed = False

    def _look_at_gpus(self, writer: BackgroundWriter) -> None:
        """Have the GPUs sampled from the first step on, and say in run.json what became of it."""
        if self._telemetry is None:
            self._telemetry = GpuTelemetry(
                lambda rows: writer.put(Step([("gpu", row) for row in rows], []), soon=False), self._step
            )
            self._telemetry.begin()
        if self._info is not None and self._info.gpu_telemetry != self._telemetry.said:
            self._info = replace(self._info, gpu_telemetry=self._telemetry.said)
            self._write_info()

    def _leave_gpus(self) -> None:
        if self._telemetry is not None and self._info is not None:
            self._telemetry.stop()
            self._info = replace(self._info, gpu_telemetry=self._telemetry.said)

    def _note_compiled(self) -> None:
        """Say in run.json that code is compiled: the modules in it are called by nobody who could be seen."""
        if self._info is not None and "compiled" not in self._info.recording and compiles():
            self._info = replace(self._info, recording={**self._info.recording, "compiled": True})
            self._write_info()

    def _claim(self) -> bool:
        claim = self.path / (FILE_NAME if self._leads else f"{CLAIM}{self.rank}")
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def _write_info(self) -> None:
        if self._leads and self._info is not None:
            write_info(self.path, self._info)
