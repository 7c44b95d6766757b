"""The operations that local twins looked at, step by step, and what is said of one that comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.opinions import op_rows
from ampdoctor.formats import FP16

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow


@dataclass(frozen=True)
class Origin:
    """The operation that comes first.

    Attributes:
        row: what was measured of it.
        order: its place among the operations of the step.
    """

    row: OpRow
    order: int

    @property
    def source(self) -> str | None:
        """`file:line` of the user's code, where known."""
        known = self.row.file and self.row.line is not None
        return f"{self.row.file}:{self.row.line}" if known else None

    @property
    def phrase(self) -> str:
        """The operation and its place: "`aten.mm` at `encoder.ffn` (train.py:41), forward"."""
        where = f" at `{self.row.module}`" if self.row.module else " outside any module"
        # A path from the root would bury the line that matters.
        line = self.row.file and f" ({self.row.file.replace(chr(92), '/').rpartition('/')[2]}:{self.row.line})"
        return f"`{self.row.op}`{where}{line if self.source else ''}, {self.row.direction}"

    @property
    def finite_in_fp32(self) -> bool | None:
        """Whether FP32 makes finite values of the same inputs; None where of some, and not of others."""
        return {0: True, self.row.born: False}.get(self.row.born_fp32)

    @property
    def overflows(self) -> bool:
        """The result is in FP16, and in FP32 finite and beyond what FP16 holds."""
        wide = "float16" in self.row.dtype_out.split(",") and self.row.absmax >= FP16.overflow_at
        return wide and self.finite_in_fp32 is True


@once_per_run
def operations(run: Run) -> dict[int, tuple[OpRow, ...]]:
    """Return the operations by step."""
    by_step: dict[int, list[OpRow]] = {}
    for row in op_rows(run):
        by_step.setdefault(row.step, []).append(row)
    return {step: _once(rows) for step, rows in by_step.items()}


def _once(rows: list[OpRow]) -> tuple[OpRow, ...]:
    """Return what was seen of the step itself where it was; a replay executes only the modules again."""
    live = tuple(r for r in rows if r.source == "live")
    return live or tuple(rows)
