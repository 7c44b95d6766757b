"""Which loss scales the gradients of a run leave room for."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.analysis.calls.scaling import DEFAULT_SCALE
from ampdoctor.formats import FP16
from ampdoctor.underflow import estimate_flushed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.analysis.backward.gradient_sites import GradientSite
    from ampdoctor.analysis.backward.gradients import GradientStep

HEADROOM_BINADES = 1
"""Distance kept from FP16's max: gradients of the next batch may be twice as large (DESIGN §4)."""

LOW_ENERGY = 0.01
"""The lowest exponent that matters leaves at most this share of a gradient's energy below it."""


@dataclass(frozen=True)
class Peak:
    """The largest gradient seen, at scale 1, and the site that held it."""

    value: float
    site: str

    @property
    def largest_scale(self) -> float:
        """Largest power of two that keeps it a binade under FP16's max."""
        return float(2.0 ** (floor(log2(FP16.max / self.value)) - HEADROOM_BINADES))


@dataclass(frozen=True)
class ScaleRange:
    """The loss scales that hold the gradients of a run.

    Attributes:
        current: the scale in force.
        peak: the largest gradient; None where every gradient seen is zero, which leaves all below unknown too.
        binades: from the largest gradient of a step down to the smallest that matters, on the step that spans most.
        smallest_module: module with the smallest gradients.
        suggested: a larger scale to start with: torch's default where that holds these gradients, else the largest
            that does; None where there is none.
        lost: largest share of energy that a site would still lose at `suggested`; None where that cannot be known.
        gone: sites of which nothing is left, so that nobody knows how large they were.
    """

    current: float
    peak: Peak | None
    binades: int | None
    smallest_module: str
    suggested: float | None
    lost: float | None
    gone: int

    @property
    def has_room(self) -> bool:
        """A scale larger than the current one fits, as far as is known."""
        return self.peak is None or self.peak.largest_scale >= 2.0 * self.current


def scale_range(steps: Sequence[GradientStep], *, weights_scaled: bool = True) -> ScaleRange:
    """Return the range of scales for the gradients of `steps` (at least one).

    Args:
        steps: examined steps.
        weights_scaled: the weight gradients were recorded multiplied by the scale, not divided by it in user code.
    """
    by_step = [
        [
            (s, step.scale)
            for s in step.all_sites
            if weights_scaled or s.row.role != "weight_grad" or s.histogram.nonfinite
        ]
        for step in steps
    ]
    sites = [site for of_step in by_step for site in of_step]
    peaks = [Peak(_largest(s) / scale, s.name) for s, scale in sites if _largest(s)]
    peak = max(peaks, key=lambda p: p.value, default=None)
    spans = [span for of_step in by_step if (span := _span(of_step)) is not None]
    smallest = min((p for p in sites if p[0].row.module), key=_smallness, default=sites[0])
    current = steps[-1].scale
    suggested, lost = _suggestion(sites, current, peak)
    return ScaleRange(
        current=current,
        peak=peak,
        binades=max(spans, default=None),
        smallest_module=smallest[0].row.module,
        suggested=suggested,
        lost=lost,
        gone=len({s.row.site for s, _ in sites if s.lost == 1.0 and not s.counted}),
    )


def lost_at(site: GradientSite, factor: float) -> float | None:
    """Return the share of energy that `site` would lose with a loss scale `factor` times as large (1 or more).

    None where nothing of it was left.
    """
    binades = max(floor(log2(factor)), 0)
    if site.counted:
        return site.histogram.shifted(binades).energy_below(FP16.flush_exponent)
    if site.lost in {0.0, 1.0}:
        return None if site.lost else 0.0
    estimate = estimate_flushed(site.histogram, FP16, binades)
    return None if estimate is None else estimate.energy_share


_Sites = list[tuple["GradientSite", float]]


def _suggestion(sites: _Sites, current: float, peak: Peak | None) -> tuple[float | None, float | None]:
    """Return the scale to start with, and what would be lost at it."""
    if peak is None:
        return (DEFAULT_SCALE if current < DEFAULT_SCALE else None), None
    largest = peak.largest_scale
    if current < DEFAULT_SCALE <= largest:
        lost = _worst_loss(sites, DEFAULT_SCALE)
        if lost is None or lost < LOW_ENERGY:
            return DEFAULT_SCALE, lost
    return (largest, _worst_loss(sites, largest)) if largest >= 2.0 * current else (None, None)


def _worst_loss(sites: _Sites, scale: float) -> float | None:
    """Return the largest share of energy lost at `scale`; None where one is not known."""
    losses = [lost_at(site, scale / current) for site, current in sites]
    known = [loss for loss in losses if loss is not None]
    return max(known, default=0.0) if len(known) == len(losses) else None


def _largest(site: GradientSite) -> float:
    """Largest value of a site; one that overflowed was at least twice what FP16 holds, as far as can be known."""
    return 2.0 * FP16.max if site.histogram.nonfinite else site.histogram.absmax


def _span(sites: _Sites) -> int | None:
    """Return how many binades the gradients of one step span; None where nothing is left of them."""
    tops = [log2(_largest(s)) for s, _ in sites if _largest(s)]
    lows = [_low_exponent(s) for s, _ in sites if s.histogram.nonzero]
    return floor(max(tops)) - min(lows) + 1 if lows else None


def _smallness(entry: tuple[GradientSite, float]) -> tuple[bool, float]:
    """Order of sites by what matters in them, those that are gone first."""
    site, scale = entry
    if not site.histogram.nonzero:
        return site.lost != 1.0, 0.0 if site.lost == 1.0 else float("inf")
    return True, _low_exponent(site) - log2(scale)


def _low_exponent(site: GradientSite) -> int:
    """Exponent of the lowest bin that matters: with all below it, it holds more than LOW_ENERGY of the energy."""
    exponents, counts = site.histogram.exponents, site.histogram.counts
    energy = np.cumsum(counts * np.exp2(2.0 * (exponents - int(exponents[-1]))))
    return int(exponents[np.searchsorted(energy, LOW_ENERGY * energy[-1], side="right")])
