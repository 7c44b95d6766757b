"""Where a step's time goes: in casts, in what stays FP32 under autocast, by dtype, operation and module."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import PaceRow, TimingRow

_FP32 = "float32"

_CASTS = frozenset({"aten._to_copy", "aten.to"})


SETTINGS = {"fp32": "FP32", "bf16": "BF16 autocast", "fp16": "FP16 autocast"}
"""The settings that `--prove` executes a step in again, with their titles."""


@dataclass(frozen=True)
class Speed:
    """The operations of one step.

    Attributes:
        step: the step.
        on_device: times are of the CUDA device, not of the host.
        rows: the operations, by where they are and what they compute in.
    """

    step: int
    on_device: bool
    rows: tuple[TimingRow, ...]

    @property
    def total_ms(self) -> float:
        """All operations: less than the step, by what the host does between them."""
        return self.time(self.rows)

    def ms(self, row: TimingRow) -> float:
        """Return the time of one row, in milliseconds."""
        return (row.device_ms or 0.0) if self.on_device else row.host_ms

    def time(self, rows: Sequence[TimingRow]) -> float:
        """Return the time of several rows, in milliseconds."""
        return sum(map(self.ms, rows))

    def share(self, rows: Sequence[TimingRow]) -> float:
        """Return the share of all operations' time that is theirs."""
        return self.time(rows) / self.total_ms if self.total_ms else 0.0

    @property
    def casts(self) -> list[TimingRow]:
        """Those that only change the dtype of floating-point numbers."""
        return [r for r in self.rows if is_cast(r)]

    @property
    def kept_fp32(self) -> list[TimingRow]:
        """Those that autocast leaves in FP32 or takes there: softmax, norms, losses and what lies between them."""
        return [
            r
            for r in self.rows
            if r.direction == "forward" and r.autocast in HALF_DTYPES and r.dtype_in == r.dtype_out == _FP32
        ]

    @property
    def in_half(self) -> list[TimingRow]:
        """Those that compute in half."""
        return [r for r in self.rows if r.dtype_out in HALF_DTYPES and not is_cast(r)]

    @property
    def misaligned(self) -> list[TimingRow]:
        """Half products and convolutions with sizes that tensor cores do not like."""
        return [r for r in self.rows if r.misaligned]

    def grouped(self, by: Callable[[TimingRow], str | None]) -> list[tuple[str, float, int]]:
        """Return (name, milliseconds, calls) of each group, longest first; rows whose name is None are left out."""
        times: defaultdict[str, float] = defaultdict(float)
        calls: Counter[str] = Counter()
        for row in self.rows:
            name = by(row)
            if name is not None:
                times[name] += self.ms(row)
                calls[name] += row.calls
        return [(name, ms, calls[name]) for name, ms in sorted(times.items(), key=lambda item: -item[1])]


def is_cast(row: TimingRow) -> bool:
    """Whether it only changes the dtype of floating-point numbers."""
    return row.op in _CASTS and row.dtype_in is not None and row.dtype_in != row.dtype_out


@once_per_run
def speeds(run: Run) -> list[Speed]:
    """Return the steps whose operations were timed."""
    found = []
    for step in sorted({row.step for row in run.timings}):
        rows = tuple(row for row in run.timings if row.step == step)
        found.append(Speed(step, any(row.device_ms is not None for row in rows), rows))
    return found


def timed(run: Run) -> dict[str, PaceRow]:
    """Return by setting what `--prove` has timed; empty where it has not."""
    return {row.setting: row for row in run.paces if row.wall_ms is not None}


def surely_faster(a: PaceRow, b: PaceRow) -> bool:
    """Whether `a` was faster in its slowest round than `b` in its fastest: more than noise."""
    return (a.slowest_ms or 0.0) < (b.fastest_ms or 0.0)


def times_as_fast(a: PaceRow, b: PaceRow) -> float:
    """Return how many times as fast `a` is as `b`, by the medians."""
    return (b.wall_ms or 0.0) / (a.wall_ms or 1.0)
