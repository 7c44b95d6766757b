"""How much a format has flushed, read from what it left standing.

A zero says nothing about why it is zero. What flushing does leave is a distribution cut off at the format's edge: the
bins rise or stay high right down to the smallest subnormal. Structural zeros (ReLU, dropout, padding) leave the rest
of the distribution far above it. Extrapolating the visible bins below the edge gives an `estimated` share between 0
and the observed zeros; only a twin step measures it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.tails import WINDOW, most_likely_tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ampdoctor.formats import NumberFormat
    from ampdoctor.histogram import ExponentHistogram


@dataclass(frozen=True)
class FlushEstimate:
    """Elements that are nonzero in high precision and zero in the run.

    Attributes:
        flushed: estimated count.
        low: certain lower bound (0 unless the values before the cast were seen).
        high: certain upper bound: the zeros that were observed.
        alive: elements still nonzero.
        energy_share: share of the sum of squares that the flushed elements held.
    """

    flushed: float
    low: float
    high: float
    alive: int
    energy_share: float

    @property
    def share(self) -> float:
        """Flushed share of the elements that are nonzero in high precision."""
        total = self.flushed + self.alive
        return self.flushed / total if total else 0.0


def flushed_by_cast(before: ExponentHistogram, number_format: NumberFormat) -> FlushEstimate:
    """Return what a cast of the values in `before` to `number_format` flushes: known, not estimated."""
    flushed = before.flushed(number_format)
    energy = before.energy_below(number_format.flush_exponent)
    return FlushEstimate(flushed, flushed, flushed, before.nonzero - flushed, energy)


def estimate_flushed(after: ExponentHistogram, number_format: NumberFormat, binades: int = 0) -> FlushEstimate | None:
    """Estimate how many zeros of `after`, values held in `number_format`, were flushed.

    With `binades`, `energy_share` is what would still be flushed of the same values times 2**binades.

    Returns None where everything is zero: then nothing is left to extrapolate from.
    """
    if after.nonzero == 0:
        return None if after.zeros else FlushEstimate(0.0, 0.0, 0.0, 0, 0.0)
    edge, high = number_format.min_subnormal_exponent, float(after.zeros)
    window = _window(after, edge)
    if not window.any() or not high:
        return FlushEstimate(0.0, 0.0, high, after.nonzero, 0.0)
    tail = most_likely_tail(window, number_format.mantissa_bits)
    kept = min(1.0, high / tail.flushed) if tail.flushed else 0.0
    # None of them held more than a quarter of a square unit.
    gone = kept * np.minimum(tail.energy, tail.flushed / 4.0)
    # What was rounded to one unit had another size before, which matters where little else is left.
    left = after.sum_squares / 4.0**edge + window[0] * (tail.at_unit - 1.0)
    still = gone[min(binades, gone.size - 1)]
    return FlushEstimate(tail.flushed * kept, 0.0, high, after.nonzero, float(still / (gone[0] + left)))


def _window(histogram: ExponentHistogram, edge: int) -> NDArray[np.float64]:
    """Return the counts of the bins from `edge` up."""
    counts = np.zeros(WINDOW)
    for exponent, count in zip(histogram.exponents, histogram.counts, strict=True):
        if 0 <= exponent - edge < WINDOW:
            counts[exponent - edge] = count
    return counts
