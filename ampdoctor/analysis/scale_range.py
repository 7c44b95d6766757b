"""Which loss scales the gradients of a run leave room for."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.analysis.scaling import DEFAULT_SCALE
from ampdoctor.formats import FP16

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.analysis.gradient_sites import GradientSite
    from ampdoctor.analysis.gradients import GradientStep

HEADROOM_BINADES = 1
"""Distance kept from FP16's max: gradients of the next batch may be twice as large (DESIGN §4)."""

LOW_ENERGY = 0.01
"""The lowest exponent that matters leaves at most this share of a gradient's energy below it."""

DENSITY_LOSS = 8.0
"""A tail of even density loses this factor of its energy with each binade: half the elements, a quarter the square."""

NO_PEAK = 2.0**-149


@dataclass(frozen=True)
class ScaleRange:
    """The loss scales that hold the gradients of a run.

    Attributes:
        current: the scale in force.
        largest: largest power of two that keeps every gradient seen a binade under FP16's max.
        peak: largest gradient seen, at scale 1.
        peak_site: where it was seen.
        binades: from the largest gradient down to the smallest that matters.
        suggested: where to start: torch's default where that holds these gradients, else `largest`.
        lost: largest share of energy that a site would still lose at `suggested`.
        counted: `lost` was counted before a cast, not extrapolated.
        seen_whole: no gradient had vanished to nothing, which might have been larger elsewhere at a higher scale.
    """

    current: float
    largest: float
    peak: float
    peak_site: str
    binades: int
    suggested: float
    lost: float
    counted: bool
    seen_whole: bool

    @property
    def has_room(self) -> bool:
        """A scale larger than the current one fits."""
        return self.largest >= 2.0 * self.current


def scale_range(steps: Sequence[GradientStep], *, weights_scaled: bool = True) -> ScaleRange:
    """Return the range of scales for the gradients of `steps` (at least one).

    Args:
        steps: examined steps.
        weights_scaled: the weight gradients were recorded multiplied by the scale, not divided by it in user code.
    """
    sites = [
        (s, step.scale)
        for step in steps
        for s in step.all_sites
        if weights_scaled or s.row.role != "weight_grad" or s.histogram.nonfinite
    ]
    peak, top = max(((_peak(s) / scale, s) for s, scale in sites), key=lambda pair: pair[0])
    largest = 2.0 ** (floor(log2(FP16.max / peak)) - HEADROOM_BINADES)
    default_fits = largest >= DEFAULT_SCALE and _worst_loss(sites, DEFAULT_SCALE)[0] < LOW_ENERGY
    suggested = DEFAULT_SCALE if default_fits else largest
    lost, counted = _worst_loss(sites, suggested)
    low = min(
        (_low_exponent(s) - log2(scale) for s, scale in sites if s.histogram.nonzero), default=0.0
    )
    return ScaleRange(
        current=steps[-1].scale,
        largest=largest,
        peak=peak,
        peak_site=top.name,
        binades=floor(log2(peak)) - floor(low) + 1,
        suggested=suggested,
        lost=lost,
        counted=counted,
        seen_whole=not any(s.lost == 1.0 and not s.counted for s, _ in sites),
    )


def lost_at(site: GradientSite, factor: float) -> float:
    """Return the share of energy that `site` would lose with a loss scale `factor` times as large."""
    binades = floor(log2(factor))
    if site.counted:
        return site.histogram.shifted(binades).energy_below(FP16.flush_exponent)
    if site.histogram.nonzero == 0 or binades < 0:
        return 0.0
    return site.lost * DENSITY_LOSS**-binades


def _worst_loss(sites: Sequence[tuple[GradientSite, float]], scale: float) -> tuple[float, bool]:
    """Return the largest share of energy lost at `scale`, and whether that was counted."""
    losses = [(lost_at(site, scale / current), site.counted) for site, current in sites]
    return max(losses, default=(0.0, False))


def _peak(site: GradientSite) -> float:
    """Largest value of a site; one that overflowed was at least twice what FP16 holds, as far as can be known."""
    return 2.0 * FP16.max if site.histogram.nonfinite else max(site.histogram.absmax, NO_PEAK)


def _low_exponent(site: GradientSite) -> int:
    """Exponent of the lowest bin that matters: with all below it, it holds more than LOW_ENERGY of the energy."""
    exponents, counts = site.histogram.exponents, site.histogram.counts
    energy = np.cumsum(counts * np.exp2(2.0 * (exponents - int(exponents[-1]))))
    return int(exponents[np.searchsorted(energy, LOW_ENERGY * energy[-1], side="right")])
