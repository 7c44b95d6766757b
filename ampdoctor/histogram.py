"""Exponent histogram: what is kept of a tensor instead of its values.

It counts floor(log2|x|) over the finite nonzero elements (subnormals at their true exponent) and zero, NaN and both
infinities apart. That is mergeable over micro-batches, ranks and steps, moves with a power-of-two loss scale, and
answers for any format how much would flush, be subnormal or overflow (DESIGN §4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from ampdoctor.formats import NumberFormat


class Interval(NamedTuple):
    """Bounds on a count that the histogram does not pin down."""

    low: int
    high: int


@dataclass(frozen=True, eq=False)
class ExponentHistogram:
    """Counts of the exponents of one tensor, or of many merged.

    Attributes:
        lowest: exponent of `counts[0]`.
        counts: elements with lowest + i == floor(log2|x|), int64.
        zeros: elements equal to zero.
        nan: elements that are NaN.
        posinf: elements equal to +inf.
        neginf: elements equal to -inf.
        absmax: largest finite magnitude, 0.0 where there is none.
        sum_squares: sum of the squares of the finite elements.
    """

    lowest: int
    counts: NDArray[np.int64]
    zeros: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    absmax: float = 0.0
    sum_squares: float = 0.0

    @classmethod
    def from_values(cls, values: ArrayLike) -> ExponentHistogram:
        """Count `values` (any shape, any real dtype) in float64."""
        flat = np.asarray(values, dtype=np.float64).ravel()
        finite = flat[np.isfinite(flat)]
        nonzero = finite[finite != 0.0]
        exponents = np.frexp(nonzero)[1].astype(np.int64) - 1
        lowest = int(exponents.min()) if exponents.size else 0
        return cls(
            lowest=lowest,
            counts=np.bincount(exponents - lowest).astype(np.int64),
            zeros=int(finite.size - nonzero.size),
            nan=int(np.isnan(flat).sum()),
            posinf=int(np.isposinf(flat).sum()),
            neginf=int(np.isneginf(flat).sum()),
            absmax=float(np.abs(finite).max(initial=0.0)),
            sum_squares=float(np.square(finite).sum()),
        )

    @property
    def nonzero(self) -> int:
        """Finite nonzero elements."""
        return int(self.counts.sum())

    @property
    def nonfinite(self) -> int:
        """NaN and infinite elements."""
        return self.nan + self.posinf + self.neginf

    @property
    def numel(self) -> int:
        """All elements."""
        return self.nonzero + self.zeros + self.nonfinite

    @property
    def rms(self) -> float:
        """Root mean square of the finite elements; 0.0 where there is none."""
        finite = self.nonzero + self.zeros
        return float(np.sqrt(self.sum_squares / finite)) if finite else 0.0

    @property
    def exponents(self) -> NDArray[np.int64]:
        """The exponent of each entry of `counts`."""
        return np.arange(self.lowest, self.lowest + self.counts.size, dtype=np.int64)

    def shifted(self, log2_factor: int) -> ExponentHistogram:
        """Return the histogram of the same values times 2**log2_factor, exact but for infinities."""
        factor = 2.0**log2_factor
        return replace(
            self,
            lowest=self.lowest + log2_factor,
            absmax=self.absmax * factor,
            sum_squares=self.sum_squares * factor * factor,
        )

    def count_below(self, exponent: int) -> int:
        """Nonzero elements with |x| < 2**exponent."""
        return int(self.counts[: max(0, exponent - self.lowest)].sum())

    def flushed(self, number_format: NumberFormat) -> int:
        """Nonzero elements that a cast to `number_format` rounds to zero.

        Elements of exactly 2**flush_exponent tie to even, i.e. to zero, and are not counted: the bin that starts
        there otherwise holds survivors.
        """
        return self.count_below(number_format.flush_exponent)

    def subnormal(self, number_format: NumberFormat) -> int:
        """Elements that stay nonzero but lose significand bits in `number_format`."""
        return self.count_below(number_format.min_exponent) - self.flushed(number_format)

    def overflowed(self, number_format: NumberFormat) -> Interval:
        """Finite elements that a cast to `number_format` makes inf or NaN, as bounds.

        The format's max is no power of two, so its top bin holds both kinds; `absmax` settles yes or no.
        """
        if self.absmax < number_format.overflow_at:
            return Interval(0, 0)
        above = self.nonzero - self.count_below(number_format.max_exponent + 1)
        top_bin = self.nonzero - above - self.count_below(number_format.max_exponent)
        return Interval(max(above, 1), above + top_bin)

    def energy_below(self, exponent: int) -> float:
        """Share of the sum of squares that lies in elements below 2**exponent (0.0 where there is no energy).

        Each bin is given the energy of its lower edge: the factor between edge and mean is about the same for all
        bins and cancels in the share.
        """
        if self.nonzero == 0:
            return 0.0
        weights = self.counts * np.exp2(2.0 * (self.exponents - int(self.exponents[-1])))
        return float(weights[: max(0, exponent - self.lowest)].sum() / weights.sum())


EMPTY = ExponentHistogram(lowest=0, counts=np.zeros(0, dtype=np.int64))


def merge(histograms: Iterable[ExponentHistogram]) -> ExponentHistogram:
    """Return the histogram of all elements together; that of no elements where there is none."""
    parts = list(histograms)
    if len(parts) == 1:
        return parts[0]
    filled = [h for h in parts if h.counts.size]
    lowest = min((h.lowest for h in filled), default=0)
    size = max((h.lowest + h.counts.size for h in filled), default=0) - lowest
    counts = np.zeros(max(size, 0), dtype=np.int64)
    for h in filled:
        start = h.lowest - lowest
        counts[start : start + h.counts.size] += h.counts
    return ExponentHistogram(
        lowest=lowest,
        counts=counts,
        zeros=sum(h.zeros for h in parts),
        nan=sum(h.nan for h in parts),
        posinf=sum(h.posinf for h in parts),
        neginf=sum(h.neginf for h in parts),
        absmax=max((h.absmax for h in parts), default=0.0),
        sum_squares=float(sum(h.sum_squares for h in parts)),
    )
