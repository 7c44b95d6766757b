"""The gradients of a step as its FP32 twin has them: nothing of them is cut, and nothing need be guessed."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.analysis.backward.unflushed import Unflushed
from ampdoctor.analysis.twins.opinions import twin_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.histogram import ExponentHistogram
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TwinRow

Site = tuple[str, str, str]
"""Role, module, slot."""


def rows_in_fp32(run: Run, step: int) -> dict[Site, list[TwinRow]]:
    """Return by site the rows of the FP32 twin of `step` that have bins: of a weight all micro-batches together."""
    found: dict[Site, list[TwinRow]] = {}
    for row in twin_rows(run):
        if row.step != step or row.counterfactual != "fp32" or row.exp_counts is None:
            continue
        whole = row.role == "weight_grad" and row.micro_batch is None
        if whole or row.role == "grad_output":
            found.setdefault((row.role, row.module, row.slot), []).append(row)
    return found


def seen_in_fp32(rows: Sequence[TwinRow], held: ExponentHistogram, scale: float) -> Unflushed | None:
    """Return the values of the twin as they are with the run's loss scale, beside what the run holds of them.

    None where the twin has other elements than the run, or has lost what the run has.
    """
    numel = sum(row.numel for row in rows)
    bins = [(row.exp_lowest or 0, np.asarray(row.exp_counts or [], dtype=np.float64)) for row in rows]
    bins = [(lowest, counts) for lowest, counts in bins if counts.size]
    if numel != held.numel or (not bins and held.nonzero):
        return None
    lowest = min((low for low, _ in bins), default=0)
    together = np.zeros(max((low + c.size for low, c in bins), default=0) - lowest)
    for low, counts in bins:
        together[low - lowest : low - lowest + counts.size] += counts
    left = held.nonzero + held.nonfinite
    gone = max(float(together.sum()) - left, 0.0)
    zeros = held.zeros if together.any() else 0  # Where FP32 has nothing, nothing is missing.
    peak = max(row.absmax for row in rows) * scale
    return Unflushed(lowest + round(log2(scale)), together, left, zeros, gone, gone, peak)
