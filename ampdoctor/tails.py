"""The distributions that a tensor may have had before a format flushed its small end.

Rounding leaves multiples of the smallest subnormal, the unit: one unit stands for everything between 0.5 and 1.5 of
them, two and three for what lay between 1.5 and 3.5. How the elements are spread over these bins tells how the rest
went on below half a unit, whatever number of structural zeros lies beside them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

WINDOW = 10
"""Bins looked at, from the unit up: what lies 1000 times above it says little about what lies below it."""

STEPS = 16
"""Points per binade at which densities are summed up."""

DEEPEST = -64
"""Binades below the unit where summing begins."""

SHAPES = (*((1.0, power) for power in (0.5, 0.7, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 8.0)), (0.5, 1.0))
"""(a, p) of |x|^(a-1) exp(-|x/s|^p): even around zero, from heavier than Laplace (p = 1) over normal (2) to nearly
uniform; and, not even, the square of a normal."""

SPREADS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
"""Standard deviations of lognormals, in binades. Gradients are close to lognormal (arXiv:2006.08173)."""

FEWEST = 1e-4
"""Where fewer than these are left, "nearly all" is the answer whatever the distribution."""

TOGETHER = 12
"""Windows whose likelihoods are worked out at once: of more, BLAS shares the product out to threads, which on a machine
that is busy takes ten times as long."""

MOST_EVIDENCE = 5000.0
"""Elements beyond these add no weight: the families are close to real gradients, not equal to them."""


DEPTHS = 32
"""Binades by which the edge may be moved down, by a larger loss scale, and the rest of the tail be told."""


class Tails(NamedTuple):
    """A grid of distributions, one per row, each given per element that rounding leaves in the window.

    Attributes:
        prior: weight of each before anything is seen; every family has the same in total.
        log_bins: logarithm of the share of the elements in each bin of the window.
        flushed: elements at or below half a unit.
        energy: sum of squares below half a unit, below a quarter, and so on by halves, in square units.
        at_unit: mean square, in square units, of the elements that are rounded to one unit.
        deep: elements in each of the DEPTHS binades below half a unit, the lowest first, with all below it.
        pieces: elements between 1/2, 1, 1.5, 2, 3.5 and 4 units.
    """

    prior: Array
    log_bins: Array
    flushed: Array
    energy: Array
    at_unit: Array
    deep: Array
    pieces: Array


class Tail(NamedTuple):
    """What lay below half a unit, as in `Tails`, and the mean square of what became one unit."""

    flushed: float
    energy: Array
    at_unit: float


def most_likely_tail(counts: Array, mantissa_bits: int) -> Tail:
    """Return what lay below half a unit, given the elements in each bin of the window (at least one).

    Each distribution counts by how well it explains the bins. Shares are averaged and not counts: where all that is
    left is a few elements of one unit, next to anything may lie below them.
    """
    grid = tails(mantissa_bits)
    total = float(counts.sum())
    weights = likelihoods(counts, mantissa_bits)
    flushed = total * _averaged(weights, grid.flushed)
    energy = total * _averaged(weights, grid.energy)
    return Tail(float(flushed), energy, float(weights @ grid.at_unit))


def most_likely_flushed(windows: Array, mantissa_bits: int) -> Array:
    """Return how many elements lay below half a unit for each of many windows, as `most_likely_tail` does for one.

    In single precision, which is off by less than a hundredth of it.

    Args:
        windows: the elements in each bin of a window, one window a row; 0 comes of one without any.
        mantissa_bits: explicit significand bits of the format.
    """
    grid = tails(mantissa_bits)
    share = (grid.flushed / (1.0 + grid.flushed)).astype(np.float32)
    log_bins, prior = np.ascontiguousarray(grid.log_bins.T, np.float32), grid.prior.astype(np.float32)
    totals = windows.sum(axis=1)
    seen = (windows * np.minimum(1.0, MOST_EVIDENCE / np.maximum(totals, 1.0))[:, None]).astype(np.float32)
    found = np.zeros(len(windows))
    for start in range(0, len(windows), TOGETHER):
        log_weights = seen[start : start + TOGETHER] @ log_bins
        log_weights -= log_weights.max(axis=1, keepdims=True)
        np.maximum(log_weights, -80.0, out=log_weights)  # what is smaller adds nothing, and subnormals are slow
        weights = np.exp(log_weights, out=log_weights)
        weights *= prior
        found[start : start + TOGETHER] = np.einsum("ij,j->i", weights, share) / weights.sum(axis=1)
    flushed: Array = totals * (found / (1.0 - found))
    return flushed


def likelihoods(counts: Array, mantissa_bits: int, most_evidence: float = MOST_EVIDENCE) -> Array:
    """Return the weight of each distribution, one in total, given the elements in each bin of the window."""
    grid = tails(mantissa_bits)
    log_weights = grid.log_bins @ (counts * min(1.0, most_evidence / float(counts.sum())))
    weights: Array = grid.prior * np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return weights


def _averaged(weights: Array, ratios: Array) -> Array:
    """Return the mean of ratios between what is gone and what is left, taken over shares of the whole."""
    share: Array = weights @ (ratios / (1.0 + ratios))
    return share / (1.0 - share)


@cache
def tails(mantissa_bits: int) -> Tails:
    """Return the grid for a format with so many explicit significand bits."""
    t = np.arange(DEEPEST, WINDOW + 1, 1.0 / STEPS) + 0.5 / STEPS
    scales = np.arange(-3.0, 14.0, 0.25)[:, None]
    medians = np.arange(-12.0, 20.0, 0.25)[:, None]
    families = [a * np.log(2.0) * t - np.exp2(p * (t - scales)) for a, p in SHAPES]
    lognormal = [-0.5 * ((t - medians) / spread) ** 2 for spread in SPREADS]
    families.append(np.concatenate(lognormal))
    log_density = np.concatenate(families)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True)) + 1e-300
    edges = _edges(mantissa_bits)
    below, squares = _summed(density, t, edges), _summed(density * 4.0**t, t, edges[:2])
    deeper = _summed(density * 4.0**t, t, np.arange(-1.0, -1.0 - DEPTHS, -1.0))
    deep = np.diff(_summed(density, t, np.arange(-DEPTHS, 0.0)), axis=1, prepend=0.0)
    pieces = np.diff(_summed(density, t, np.log2([0.5, 1.0, 1.5, 2.0, 3.5, 4.0])), axis=1)
    bins = np.diff(below, axis=1)
    visible = bins.sum(axis=1)
    kept = visible > FEWEST * below[:, -1]
    prior = np.concatenate([np.full(len(f), 1.0 / len(f)) for f in families])
    shares = bins[kept] / visible[kept, None]
    return Tails(
        prior[kept],
        np.log(np.maximum(shares, 1e-12)),
        below[kept, 0] / visible[kept],
        deeper[kept] / visible[kept, None],
        (squares[kept, 1] - squares[kept, 0]) / np.maximum(bins[kept, 0], 1e-300),
        deep[kept] / visible[kept, None],
        pieces[kept] / visible[kept, None],
    )


def _edges(mantissa_bits: int) -> Array:
    """Return log2 of where the bins begin before rounding, in units: half a spacing under each power of two."""
    exponents = np.arange(WINDOW + 1, dtype=np.float64)
    spacing = np.maximum(1.0, np.exp2(exponents - 1.0 - mantissa_bits))
    return np.log2(np.exp2(exponents) - spacing / 2.0)


def _summed(density: Array, t: Array, edges: Array) -> Array:
    """Return the integral of each row up to each of `edges`."""
    sums = np.cumsum(density, axis=1)
    ends = t + 0.5 / STEPS
    return np.stack([np.interp(edges, ends, row) for row in sums])
