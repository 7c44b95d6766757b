"""Where whole numbers, phases and scaled tensors were rounded, as watched operations say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import RoundingRow


@once_per_run
def roundings(run: Run) -> dict[str, tuple[RoundingRow, ...]]:
    """Return the places by kind, in order."""
    by_kind: dict[str, list[RoundingRow]] = {}
    for row in run.roundings:
        by_kind.setdefault(row.kind, []).append(row)
    return {kind: tuple(rows) for kind, rows in by_kind.items()}


def source(row: RoundingRow) -> str | None:
    """Return `file:line` of the user's code, where known."""
    return f"{row.file}:{row.line}" if row.file and row.line is not None else None


def place(row: RoundingRow) -> str:
    """Return where it is, as a phrase: "in `decoder.rope` (model.py:41)"."""
    short = row.file.replace("\\", "/").rpartition("/")[2] if row.file else None
    line = f"{short}:{row.line}" if short else None
    if row.module:
        return f"in `{row.module}`" + (f" ({line})" if line else "")
    return f"at {line}" if line else f"in `{row.op}`"


def at_line(row: RoundingRow) -> str:
    """Return a comment that names the line to change."""
    known = source(row)
    return f"  # {known}" if known else ""


def collided(row: RoundingRow) -> float:
    """Return the share of different whole numbers that are not told apart any more."""
    return (row.distinct - (row.distinct_after or 0)) / row.distinct if row.distinct else 0.0
