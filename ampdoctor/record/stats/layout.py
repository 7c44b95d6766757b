"""How one tensor's statistics lie in a vector of float64: exact for counts up to 2^53."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOWEST = -149
"""Exponent of the first bin: the smallest FP32 subnormal. Smaller FP64 values are counted there."""

HIGHEST = 127
"""Exponent of the last bin: the largest FP32 binade. Larger FP64 values are counted there."""

HEADER = 6
"""Numbers before the bins: zeros, NaN, +inf, -inf, absmax, sum of squares."""

EXTRA = HEADER + HIGHEST - LOWEST + 1
"""Where numbers that only some roles have begin."""


class Statistics(NamedTuple):
    """A decoded vector; `exp_counts` is trimmed to the bins between the first and last nonzero one."""

    zeros: int
    nan: int
    posinf: int
    neginf: int
    absmax: float
    sum_squares: float
    exp_lowest: int
    exp_counts: list[int]
    extra: list[float]

    @property
    def nonfinite(self) -> int:
        """NaN and infinite elements."""
        return self.nan + self.posinf + self.neginf


def decode(vector: NDArray[np.float64]) -> Statistics:
    """Read a vector that was fetched from the device."""
    bins = vector[HEADER:EXTRA]
    filled = np.flatnonzero(bins)
    first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
    zeros, nan, posinf, neginf = (int(n) for n in vector[:4])
    return Statistics(
        zeros, nan, posinf, neginf, float(vector[4]), float(vector[5]),
        LOWEST + first if filled.size else 0, bins[first:last].astype(np.int64).tolist(), vector[EXTRA:].tolist(),
    )  # fmt: skip
