"""Fewer points for a line than were recorded, so that nothing is lost that one could see."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_POINTS = 2400
"""Points of a line: more than a screen has columns."""

LARGEST, SMALLEST = 1e300, 1e-300
"""Magnitudes beyond are drawn there, and below as zero: the length of an axis must be a number itself."""


def drawable(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values that a browser can find an axis for: what is not finite is a gap."""
    found = np.where(np.isfinite(values), np.clip(values, -LARGEST, LARGEST), np.nan)
    return np.where(np.abs(found) < SMALLEST, 0.0, found)


def thinned(y: NDArray[np.float64], most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Return the places of the points of `y` to draw: of each stretch the lowest, the highest and the first missing.

    So spikes stay, gaps stay, and the first and last point stay.
    """
    if len(y) <= most:
        return np.arange(len(y))
    edges = np.linspace(0, len(y), most // 4 + 1).astype(int)
    kept: set[int] = {0, len(y) - 1}
    for begin, end in pairwise(edges.tolist()):
        stretch = y[begin:end]
        missing = np.isnan(stretch)
        if missing.any():
            kept.add(begin + int(np.argmax(missing)))
        if not missing.all():
            kept.add(begin + int(np.nanargmin(stretch)))
            kept.add(begin + int(np.nanargmax(stretch)))
    return np.array(sorted(kept))
