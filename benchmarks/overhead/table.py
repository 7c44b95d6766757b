"""Results as lines of a Markdown table."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.overhead.measure import Plan, Result

COLUMNS = {
    "training": "---", "tool": "---", "wall": "---:", "min to max": "---:", "CPU": "---:", "pairs": "---:",
    "bare step": "---:", "extra peak memory": "---:", "written a step": "---:", "examined": "---:",
}  # fmt: skip


def heading() -> str:
    """Return the first two lines."""
    return "\n".join(("| " + " | ".join(COLUMNS) + " |", "|" + "|".join(COLUMNS.values()) + "|"))


def row(plan: Plan, result: Result, bare_peak: int | None) -> str:
    """Return the line of a result; `bare_peak` is the memory of the same training without a tool, if known."""
    cells = [f"{plan.workload}, {plan.precision}", plan.tool]
    if result.missing is not None:
        cells += [result.missing, *[""] * (len(COLUMNS) - 3)]
    else:
        examined = "" if result.examined is None else "{} of {}".format(*result.examined)
        cells += [
            f"{statistics.median(result.wall):.3f}x",
            spread(result),
            f"{statistics.median(result.cpu):.3f}x",
            str(len(result.wall)),
            f"{result.bare_ms:.1f} ms",
            "" if bare_peak is None else f"{(result.peak_bytes - bare_peak) / 1e6:.0f} MB",
            size(result.written),
            examined,
        ]
    return "| " + " | ".join(cells) + " |"


def spread(result: Result) -> str:
    """Return the smallest and the largest ratio; of whole recordings, of which there are few, their second half."""
    if result.later:
        return f"second half {statistics.median(result.later):.2f}x"
    return f"{min(result.wall):.2f} to {max(result.wall):.2f}"


def size(count: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "kB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} MB"
