"""The exponent histogram that a gradient had before its format flushed the small end of it.

What was flushed is put back below the format's edge, spread as the most likely distributions have it (`tails`), and the
lowest bins, which rounding has moved elements between, are split the same way. Counts are estimates and no integers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.tails import DEPTHS, WINDOW, likelihoods, tails
from ampdoctor.underflow import estimate_flushed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ampdoctor.formats import NumberFormat
    from ampdoctor.histogram import ExponentHistogram

LIKELY = 0.025
"""Share of the probability left out at either end of what may have been flushed."""

EVIDENCE_FOR_BOUNDS = 100.0
"""Elements that bounds are drawn from: the families come close to real gradients and are not equal to them, so that
more elements must not make the bounds narrower."""


@dataclass(frozen=True, eq=False)
class Unflushed:
    """A gradient as it was before flushing, scaled as in the run.

    Attributes:
        lowest: exponent of `counts[0]`.
        counts: estimated elements by floor(log2|x|).
        alive: elements that the run has nonzero.
        zeros: elements that the run has zero.
        flushed_low: the fewest of the zeros that were flushed, as far as is likely.
        flushed_high: the most.
        absmax: largest magnitude.
    """

    lowest: int
    counts: NDArray[np.float64]
    alive: int
    zeros: int
    flushed_low: float
    flushed_high: float
    absmax: float

    @cached_property
    def nonzero(self) -> float:
        """Estimated elements that are nonzero in high precision."""
        return float(self.counts.sum())

    @property
    def gone(self) -> bool:
        """Nothing is left, though there are elements, and nobody knows what they were."""
        return self.alive == 0 and self.zeros > 0 and not self.nonzero

    def shifted(self, log2_factor: int) -> Unflushed:
        """Return the same values times 2**log2_factor."""
        return replace(self, lowest=self.lowest + log2_factor, absmax=self.absmax * 2.0**log2_factor)

    def below(self, exponent: float) -> float:
        """Estimated nonzero elements below 2**exponent; a bin is taken to be even over its logarithm."""
        return _up_to(self.counts, exponent - self.lowest)

    def energy_below(self, exponent: float) -> float:
        """Estimated share of the sum of squares that lies in elements below 2**exponent."""
        energy = self.counts * np.exp2(2.0 * (np.arange(self.counts.size) - self.counts.size))
        total = float(energy.sum())
        return _up_to(energy, exponent - self.lowest) / total if total else 0.0


def _up_to(values: NDArray[np.float64], place: float) -> float:
    """Return the sum of `values` up to `place`, the last of them in part."""
    place = min(max(place, 0.0), float(values.size))
    whole = int(place)
    part = float(values[whole]) * (place - whole) if whole < values.size else 0.0
    return float(values[:whole].sum()) + part


def as_it_is(h: ExponentHistogram) -> Unflushed:
    """Return a gradient that no format has cut."""
    return Unflushed(h.lowest, h.counts.astype(float), h.nonzero, h.zeros, 0.0, 0.0, h.absmax)


def unflushed(h: ExponentHistogram, number_format: NumberFormat) -> Unflushed:
    """Return what the values that `h` holds in `number_format` had been."""
    edge = number_format.min_subnormal_exponent
    lowest = min(edge - 1 - DEPTHS, h.lowest)
    counts = np.zeros(max(h.lowest + h.counts.size, edge + WINDOW) - lowest)
    counts[h.lowest - lowest : h.lowest - lowest + h.counts.size] = h.counts
    at = edge - lowest
    window = counts[at : at + WINDOW]
    estimate = estimate_flushed(h, number_format)
    if estimate is None or not window.any():
        # Far above the edge no distribution of the grid goes down to it: those zeros are structural.
        most = 0.0 if h.nonzero else float(h.zeros)
        return Unflushed(lowest, counts, h.nonzero, h.zeros, 0.0, most, h.absmax)
    bits = number_format.mantissa_bits
    weights = likelihoods(window, bits)
    low, high = _likely(window, bits)
    deep = weights @ tails(bits).deep
    half, one, below_two, two, _ = weights @ tails(bits).pieces
    to_half = window[0] * half / max(half + one, 1e-300)
    to_one = window[1] * below_two / max(below_two + two, 1e-300)
    counts[at - 1 - DEPTHS : at - 1] += estimate.flushed * deep / max(float(deep.sum()), 1e-300)
    counts[at - 1 : at + 2] += (to_half, to_one - to_half, -to_one)
    zeros = float(h.zeros)
    flushed_low, flushed_high = min(low, estimate.flushed), max(min(high, zeros), estimate.flushed)
    return Unflushed(lowest, counts, h.nonzero, h.zeros, flushed_low, flushed_high, h.absmax)


def _likely(window: NDArray[np.float64], mantissa_bits: int) -> tuple[float, float]:
    """Return the fewest and the most elements that may well have been flushed."""
    flushed = tails(mantissa_bits).flushed
    order = np.argsort(flushed)
    cumulated = np.cumsum(likelihoods(window, mantissa_bits, EVIDENCE_FOR_BOUNDS)[order])
    ends = np.searchsorted(cumulated, (LIKELY, 1.0 - LIKELY))
    low, high = flushed[order][np.minimum(ends, order.size - 1)] * float(window.sum())
    return float(low), float(high)
