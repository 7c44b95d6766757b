"""Totals that code keeps in half, line by line: what was added to them and did not change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.wording import counted
from ampdoctor.formats import format_of_dtype, title_of_dtype

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import AccumulatorRow


@dataclass(frozen=True)
class Accumulator:
    """One line that adds to totals in half.

    Attributes:
        rows: what was seen of it, in order of the steps.
    """

    rows: tuple[AccumulatorRow, ...]

    @property
    def last(self) -> AccumulatorRow:
        """What was seen last."""
        return self.rows[-1]

    @property
    def scalar(self) -> bool:
        """Whether each total is a single number."""
        return self.last.numel == self.last.calls

    @property
    def title(self) -> str:
        """The format that the totals are held in."""
        return title_of_dtype(self.last.dtype)

    @property
    def source(self) -> str | None:
        """`file:line` of the user's code."""
        row = self.last
        return f"{row.file}:{row.line}" if row.file and row.line is not None else None

    @property
    def place(self) -> str:
        """The line as it is set in text."""
        return f"`{self.source}`" if self.source else "a line of the training loop"

    @property
    def half_place(self) -> float:
        """The largest share of a value that never changes it: eps/4 of the format, just below a power of two."""
        number_format = format_of_dtype(self.last.dtype)
        return number_format.eps / 4.0 if number_format else 0.0

    def hurt(self, energy: float) -> tuple[AccumulatorRow, ...]:
        """Return the rows on which increments of at least this share of all energy were absorbed."""
        return tuple(r for r in self.rows if (r.energy_absorbed or 0.0) >= energy)

    def lost(self, end: int) -> float:
        """Return what is missing from one total at the step `end`, in times of its size (estimated).

        What was absorbed on a step is taken to be on all up to the next one looked at, where the total lasts.
        """
        missing = 0.0
        nexts = [*(r.step for r in self.rows[1:]), max(end, self.last.step + 1)]
        for row, following in zip(self.rows, nexts, strict=True):
            steps = following - row.step if row.lasting else 1
            additions = row.calls / (row.totals or row.calls)
            absorbed = row.absorbed / row.numel * additions if row.numel else 0.0
            size = max(row.absmax, 1e-300)
            gone = absorbed * (row.increment or 0.0) * steps / size
            missing = missing + gone if row.lasting else max(missing, gone)
        return missing


@once_per_run
def accumulators(run: Run) -> tuple[Accumulator, ...]:
    """Return the lines that add to totals in half, those left out that keep what rounding takes (Kahan)."""
    lines: dict[tuple[object, ...], list[AccumulatorRow]] = {}
    for row in run.accumulators:
        key = (row.file, row.line, row.function, row.op, row.kind, row.added, row.dtype)
        lines.setdefault(key, []).append(row)
    return tuple(Accumulator(tuple(rows)) for rows in lines.values() if not any(r.compensated for r in rows))


def seen_text(hurt: int, every: int) -> str:
    """Return on how many of the steps looked at it is so."""
    return f"So it is on {hurt} of {counted(every, 'step')} looked at."
