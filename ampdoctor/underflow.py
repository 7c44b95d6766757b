"""How much a format has flushed, read from what it left standing.

A zero says nothing about why it is zero. What flushing does leave is a distribution cut off at the format's edge: the
bins rise or stay high right down to the smallest subnormal. Structural zeros (ReLU, dropout, padding) leave the rest
of the distribution far above it. Extrapolating the visible bins below the edge gives an `estimated` share between 0
and the observed zeros; only a twin step measures it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import erf, erfc, exp, log, pi, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ampdoctor.formats import NumberFormat
    from ampdoctor.histogram import ExponentHistogram

TAIL_BINADES = 64
"""How far below the edge a fitted tail is followed; beyond it the counts are far below one element."""

MIN_BINS = 3
"""A parabola needs three bins."""

BINADE_MEAN_SQUARE = 7.0 / 3.0
"""Mean of x² over [1, 2), where density is even."""


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


class _Tail(NamedTuple):
    """What lay below the edge: elements and their sum of squares, beside the sum of squares of all."""

    elements: float
    energy: float
    total: float

    @property
    def energy_share(self) -> float:
        return self.energy / self.total if self.total else 0.0


_NO_TAIL = _Tail(0.0, 0.0, 0.0)


def flushed_by_cast(before: ExponentHistogram, number_format: NumberFormat) -> FlushEstimate:
    """Return what a cast of the values in `before` to `number_format` flushes: known, not estimated."""
    flushed = before.flushed(number_format)
    energy = before.energy_below(number_format.flush_exponent)
    return FlushEstimate(flushed, flushed, flushed, before.nonzero - flushed, energy)


def estimate_flushed(after: ExponentHistogram, number_format: NumberFormat) -> FlushEstimate | None:
    """Estimate how many zeros of `after`, values held in `number_format`, were flushed.

    Of three tails the one with the most elements is taken: each is a lower bound for its kind of distribution, and
    the zeros that were observed bound all of them from above.

    Returns None where everything is zero: then nothing is left to extrapolate from.
    """
    if after.nonzero == 0:
        return None if after.zeros else FlushEstimate(0.0, 0.0, 0.0, 0, 0.0)
    edge = number_format.min_subnormal_exponent
    tail = max(_even_tail(after, edge), _normal_tail(after, edge), _lognormal_tail(after, edge))
    high = float(after.zeros)
    kept = min(1.0, high / tail.elements) if tail.elements else 0.0
    return FlushEstimate(tail.elements * kept, 0.0, high, after.nonzero, tail.energy_share * kept)


def _even_tail(histogram: ExponentHistogram, edge: int) -> _Tail:
    """A density that is even around zero: each binade holds half of the one above."""
    at_edge = float(histogram.counts[histogram.exponents == edge].sum())
    energy = at_edge * 4.0**edge / 12.0
    return _Tail(at_edge, energy, energy + histogram.sum_squares)


def _lognormal_tail(histogram: ExponentHistogram, edge: int) -> _Tail:
    """Gradients are close to lognormal (arXiv:2006.08173): a parabola through the log counts, weighted by counts."""
    exponents, counts = histogram.exponents, histogram.counts
    seen = (counts > 0) & (exponents >= edge)
    if int(seen.sum()) < MIN_BINS:
        return _NO_TAIL
    x, n = (exponents[seen] - edge).astype(np.float64), counts[seen].astype(np.float64)
    curvature, slope, height = np.polyfit(x, np.log(n), 2, w=np.sqrt(n))
    if curvature >= 0.0:
        return _NO_TAIL
    below = -np.arange(1, TAIL_BINADES + 1, dtype=np.float64)
    fitted = np.exp(np.minimum(curvature * below**2 + slope * below + height, 700.0))
    energy = float((fitted * np.exp2(2.0 * (below + edge))).sum()) * BINADE_MEAN_SQUARE
    return _Tail(float(fitted.sum()), energy, energy + histogram.sum_squares)


def _normal_tail(histogram: ExponentHistogram, edge: int) -> _Tail:
    """A normal distribution with the mean square of what is left, in units of the smallest subnormal.

    It is what remains to go by where all that is left are one or two binades at the edge. Where every element is one
    unit, the mean square is taken as if the chance of an unseen two were one half.
    """
    alive = histogram.nonzero
    unit = 4.0**edge
    observed = max(histogram.sum_squares / alive / unit, 1.0 + 3.0 * log(2.0) / alive)
    sigmas, mean_squares = _rounded_normal()
    if observed >= mean_squares[-1]:
        return _NO_TAIL
    sigma = float(np.interp(observed, mean_squares, sigmas))
    cut = 0.5 / sigma
    elements = alive / erfc(cut / sqrt(2.0))
    below = erf(cut / sqrt(2.0))
    energy_below = below - 2.0 * cut * exp(-cut * cut / 2.0) / sqrt(2.0 * pi)
    # Rounding made what is left larger than it was, so the total is the fitted one.
    total = elements * sigma * sigma * unit
    return _Tail(elements * below, total * energy_below, total)


@cache
def _rounded_normal() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return standard deviations, and the mean square of what rounding to whole numbers leaves nonzero of each."""
    sigmas = np.exp2(np.linspace(-3.0, 3.0, 49))
    values = np.arange(1, 65, dtype=np.float64)
    mean_squares = []
    for sigma in sigmas:
        above = np.array([erfc((k - 0.5) / sigma / sqrt(2.0)) for k in range(1, 66)])
        shares = above[:-1] - above[1:]
        mean_squares.append(float((values**2 * shares).sum() / shares.sum()))
    return sigmas, np.array(mean_squares)
