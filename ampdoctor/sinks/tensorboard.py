"""TensorBoard: metrics as scalars at the time of their step, findings and the diagnosis as text."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from ampdoctor.errors import AmpDoctorError
from ampdoctor.report import text
from ampdoctor.sinks.base import PREFIX, library
from ampdoctor.sinks.wording import fenced, key, markdown

if TYPE_CHECKING:
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.sinks.base import StepMetrics


class TensorBoardSink:
    """Writes to TensorBoard.

    Args:
        writer_or_logdir: your `SummaryWriter` (torch's or tensorboardX's), or a log folder for an event file of our
            own, which needs no torch.

    Raises:
        AmpDoctorError: the package tensorboard is missing, or the folder can't be written.
    """

    def __init__(self, writer_or_logdir: Any) -> None:
        self._own = isinstance(writer_or_logdir, str | os.PathLike)
        self._writer = _EventFile(os.fspath(writer_or_logdir)) if self._own else writer_or_logdir

    def metrics(self, metrics: StepMetrics) -> None:
        """Add the numbers of a step."""
        for name, value in metrics.values.items():
            self._writer.add_scalar(name, value, metrics.step, walltime=metrics.time)

    def finding(self, finding: Finding) -> None:
        """Add a finding as text, on the step where it was first seen."""
        step = finding.location.first_step or 0
        self._writer.add_text(f"{PREFIX}finding/{key(finding)}", markdown(finding), step)

    def diagnosis(self, diagnosis: Diagnosis) -> None:
        """Add the report as text."""
        shown = f"{diagnosis.verdict}\n\n{fenced(text.render(diagnosis))}"
        self._writer.add_text(f"{PREFIX}diagnosis", shown, max(diagnosis.examined.steps - 1, 0))

    def flush(self) -> None:
        """Write what waits to the event file."""
        self._writer.flush()

    def close(self) -> None:
        """End an event file of our own."""
        self.flush()
        if self._own:
            self._writer.close()


class _EventFile:
    """The two methods of torch's `SummaryWriter` that are needed, by the package tensorboard alone."""

    def __init__(self, folder: str) -> None:
        writer = library("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._events = library("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summaries = library("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._tensors = library("tensorboard.compat.proto.tensor_pb2", "tensorboard")
        self._types = library("tensorboard.compat.proto.types_pb2", "tensorboard")
        self._texts = library("tensorboard.plugins.text.metadata", "tensorboard")
        try:
            self._file = writer.EventFileWriter(folder)
        except OSError as error:
            raise AmpDoctorError(f"cannot write to {folder}: {error.strerror or error}") from None

    def add_scalar(self, tag: str, value: float, step: int, *, walltime: float) -> None:
        self._add(step, walltime, tag=tag, simple_value=value)

    def add_text(self, tag: str, shown: str, step: int) -> None:
        tensor = self._tensors.TensorProto(dtype=self._types.DT_STRING, string_val=[shown.encode()])
        metadata = self._texts.create_summary_metadata(tag, "")
        self._add(step, time.time(), tag=f"{tag}/text_summary", tensor=tensor, metadata=metadata)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _add(self, step: int, walltime: float, **value: Any) -> None:
        summary = self._summaries.Summary(value=[self._summaries.Summary.Value(**value)])
        self._file.add_event(self._events.Event(wall_time=walltime, step=step, summary=summary))


def for_export(where: str, _name: str) -> TensorBoardSink:
    """Return the sink for `--to tensorboard=LOGDIR`."""
    if not where:
        raise AmpDoctorError("TensorBoard needs a log folder", hint="--to tensorboard=LOGDIR")
    return TensorBoardSink(where)
