"""A sink that keeps what it is told, and run folders that grow as a reader beside the recorder sees them grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import TraceWriter, table_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.sinks.base import StepMetrics
    from ampdoctor.trace.builder import RunBuilder


class Kept:
    """A sink that only keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[StepMetrics] = []
        self.findings: list[Finding] = []
        self.diagnoses: list[Diagnosis] = []
        self.flushed = self.closed = 0

    def metrics(self, metrics: StepMetrics) -> None:
        assert not self.closed
        self.steps.append(metrics)

    def finding(self, finding: Finding) -> None:
        self.findings.append(finding)

    def diagnosis(self, diagnosis: Diagnosis) -> None:
        self.diagnoses.append(diagnosis)

    def flush(self) -> None:
        self.flushed += 1

    def close(self) -> None:
        self.closed += 1


def write(folder: Path, builder: RunBuilder, *, status: str = "complete", flushes: Sequence[int] = ()) -> Path:
    """Write the rows of `builder` into a run folder, the steps up to each of `flushes` at a time."""
    folder.mkdir(exist_ok=True)
    write_info(folder, RunInfo(status=status))
    writer = TraceWriter(folder)
    begin = -1
    for end in (*flushes, 10**9):
        for name, rows in builder._rows.items():
            writer.append(name, [row for row in rows if begin < row.step <= end])
        writer.flush()
        begin = end
    writer.close()
    return folder


def as_written(source: Path, folder: Path, builder: RunBuilder, flushes: Sequence[int]) -> Iterator[tuple[Path, bytes]]:
    """Yield what a recorder appends to which file of `folder`, in its order: each flush goes through all tables."""
    written: dict[str, bytes] = {}
    for number in range(len(flushes) + 1):
        last = flushes[number] if number < len(flushes) else 10**9
        shown = builder.__class__()
        shown._rows = {name: [r for r in rows if r.step <= last] for name, rows in builder._rows.items()}
        part = write(source / str(number), shown, flushes=flushes[:number])
        for name in TABLES:
            path = table_path(part, name)
            if path.is_file():
                held = path.read_bytes()[: -len(END)]  # what closing a stream adds comes when all is over
                before = written.get(name, b"")
                assert held.startswith(before)
                written[name] = held
                yield table_path(folder, name), held[len(before) :]


END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Last bytes of an Arrow stream that was closed."""
