"""What FP16 took of one gradient.

A gradient is flushed in stages: at the cast of an FP32 gradient to FP16, in each operation of the backward pass, and
in the product that makes a weight gradient. Before a cast the values are known, so its loss is counted; elsewhere it
is estimated from what was left standing. Where nothing was left, the stage before tells flushed from structural zeros:
a gradient that had come close to the edge of FP16 was flushed, one far above it was zero by the model's own doing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.formats import FP16
from ampdoctor.underflow import estimate_flushed, flushed_by_cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.histogram import ExponentHistogram
    from ampdoctor.trace.schema import TensorRow

ATTENUATION_BINADES = 8
"""How much smaller than its input one stage of a backward pass may make a gradient, and no more be expected to.

A product with weights keeps the size or takes a few binades (a width of 64 and weights of 0.02: 2.6); the most is taken
by a mean or an attention that spreads evenly: over 256 places, each gets a 256th.
"""

PRESSED = FP16.min_subnormal * 2.0**ATTENUATION_BINADES
"""A gradient whose largest element is below this may be zero one stage further down for lack of range alone."""


NEGLIGIBLE = 1e-3
"""A loss of energy that turns a gradient by less than 2 degrees is not worth a fit."""


@dataclass(frozen=True)
class GradientSite:
    """One gradient on one step, micro-batches merged.

    Attributes:
        row: its first row.
        histogram: of all its elements; of the FP32 values for a gradient about to be cast.
        lost: share of its energy (sum of squares) that FP16 flushed at this stage; 1 where all of it went.
        counted: the values before FP16 were seen, so that nothing is estimated.
    """

    row: TensorRow
    histogram: ExponentHistogram
    lost: float
    counted: bool = False

    @property
    def flushed(self) -> float:
        """Share of its nonzero elements that FP16 flushed at this stage."""
        if self.counted:
            return flushed_by_cast(self.histogram, FP16).share
        estimate = estimate_flushed(self.histogram, FP16)
        return self.lost if estimate is None else estimate.share

    @property
    def name(self) -> str:
        """What the report calls the place: the module, or the parameter that no module holds."""
        return self.row.module or (self.row.slot if self.row.role == "weight_grad" else "the loss")


def measured(row: TensorRow, histogram: ExponentHistogram, before: Sequence[GradientSite]) -> GradientSite:
    """Return the site of `row`; `before` are the stages above it, nearest last."""
    if row.slot.startswith("cast"):
        return GradientSite(row, histogram, flushed_by_cast(histogram, FP16).energy_share, counted=True)
    if not histogram.nonzero:
        return GradientSite(row, histogram, 1.0 if _flushed_whole(row, before) else 0.0)
    # Each zero was at most half the smallest subnormal, which bounds the loss without looking at the distribution.
    bound = histogram.zeros * 4.0**FP16.flush_exponent
    if bound <= NEGLIGIBLE * histogram.sum_squares:
        return GradientSite(row, histogram, 0.0)
    estimate = estimate_flushed(histogram, FP16)
    return GradientSite(row, histogram, estimate.energy_share if estimate is not None else 0.0)


def _flushed_whole(row: TensorRow, before: Sequence[GradientSite]) -> bool:
    """Whether a gradient of nothing but zeros was flushed; `before` are the stages above it, nearest last."""
    own = [s for s in before if s.row.module == row.module] if row.role == "weight_grad" else []
    for site in reversed(own or before):
        if site.histogram.nonzero:
            return site.histogram.absmax < PRESSED
    return bool(own) and any(s.lost == 1.0 for s in own)
