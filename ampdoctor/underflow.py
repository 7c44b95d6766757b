"""How many elements a format has flushed, read from what it left standing.

A zero says nothing about why it is zero. What flushing does leave is a distribution cut off at the format's edge: the
bins rise or stay high right down to the smallest subnormal. Structural zeros (ReLU, dropout, padding) leave the rest
of the distribution far above it. Extrapolating the visible bins below the edge gives an `estimated` share between 0
and the observed zeros; only a twin step measures it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ampdoctor.formats import NumberFormat
    from ampdoctor.histogram import ExponentHistogram

TAIL_BINADES = 64
"""How far below the edge the tail is followed; beyond it the fitted counts are far below one element."""

MIN_BINS = 3
"""A parabola needs three bins; with fewer the tail is taken to halve per binade."""


@dataclass(frozen=True)
class FlushEstimate:
    """Elements that are nonzero in high precision and zero in the run.

    Attributes:
        flushed: estimated count.
        low: certain lower bound (0 unless the values before the cast were seen).
        high: certain upper bound: the zeros that were observed.
        alive: elements still nonzero.
    """

    flushed: float
    low: float
    high: float
    alive: int

    @property
    def share(self) -> float:
        """Flushed share of the elements that are nonzero in high precision."""
        total = self.flushed + self.alive
        return self.flushed / total if total else 0.0


def flushed_by_cast(before: ExponentHistogram, number_format: NumberFormat) -> FlushEstimate:
    """Return what a cast of the values in `before` to `number_format` flushes: known, not estimated."""
    flushed = before.flushed(number_format)
    return FlushEstimate(flushed, flushed, flushed, before.nonzero - flushed)


def estimate_flushed(after: ExponentHistogram, number_format: NumberFormat) -> FlushEstimate | None:
    """Estimate how many zeros of `after`, values held in `number_format`, were flushed.

    Returns None where everything is zero: then nothing is left to extrapolate from.
    """
    if after.nonzero == 0:
        return None if after.zeros else FlushEstimate(0.0, 0.0, 0.0, 0)
    tail = _tail_count(after, number_format.min_subnormal_exponent)
    return FlushEstimate(min(tail, float(after.zeros)), 0.0, float(after.zeros), after.nonzero)


def _tail_count(histogram: ExponentHistogram, edge: int) -> float:
    """Extrapolate the bins at and above `edge` to those below it.

    Gradients are close to lognormal (arXiv:2006.08173), so the log counts are fitted by a parabola weighted with the
    counts. The least that is taken is a tail that halves per binade, which sums to the count at the edge: so falls
    any density that is smooth and positive at zero, the normal one for instance.
    """
    exponents, counts = histogram.exponents, histogram.counts
    seen = (counts > 0) & (exponents >= edge)
    if not seen.any():
        return 0.0
    at_edge = float(counts[exponents == edge].sum())
    x, n = exponents[seen].astype(np.float64), counts[seen].astype(np.float64)
    if x.size >= MIN_BINS:
        curvature, slope, height = np.polyfit(x - edge, np.log(n), 2, w=np.sqrt(n))
        if curvature < 0.0:
            below = -np.arange(1, TAIL_BINADES + 1, dtype=np.float64)
            fitted = np.exp(np.minimum(curvature * below**2 + slope * below + height, 700.0))
            return max(float(fitted.sum()), at_edge)
    return at_edge
