"""Sums, largest and smallest values over the lines of the tree and the steps, all at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ampdoctor_dashboard.data.tree import Row


@dataclass(frozen=True)
class Cells:
    """Where each of some tensors belongs.

    Attributes:
        line: its line.
        column: its step's place.
        rows: the lines.
        columns: how many steps there are.
    """

    line: NDArray[np.intp]
    column: NDArray[np.intp]
    rows: Sequence[Row]
    columns: int

    @property
    def _flat(self) -> NDArray[np.intp]:
        return self.line * self.columns + self.column

    def summed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum in each cell; a module's is that of everything below it."""
        size = len(self.rows) * self.columns
        found = np.bincount(self._flat, values, size).astype(np.float64).reshape(len(self.rows), self.columns)
        for place, parent in self._upwards():
            found[parent] += found[place]
        return found

    def counted(self) -> NDArray[np.float64]:
        """Return how many tensors there are in each cell."""
        return self.summed(np.ones(len(self.line)))

    def largest(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest value in each cell, NaN where there is none."""
        found = np.full((len(self.rows), self.columns), np.nan)
        np.fmax.at(found.reshape(-1), self._flat, values)
        for place, parent in self._upwards():
            found[parent] = np.fmax(found[parent], found[place])
        return found

    def _upwards(self) -> Iterator[tuple[int, int]]:
        """Yield each line that lies in a module, with the module's, from the bottom up."""
        for place in range(len(self.rows) - 1, -1, -1):
            if self.rows[place].parent >= 0:
                yield place, self.rows[place].parent


def worst_of(
    values: NDArray[np.float64], starts: NDArray[np.intp], *, low_is_bad: bool
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return for each line and run of columns the worst value, and the column that it is in.

    Args:
        values: lines x columns; NaN where there is none.
        starts: the first column of each run.
        low_is_bad: the smallest value is the worst.
    """
    if len(starts) == values.shape[1]:
        return values, np.broadcast_to(starts, values.shape)
    signed = np.where(np.isnan(values), -np.inf, -values if low_is_bad else values)
    best = np.maximum.reduceat(signed, starts, axis=1)
    lengths = np.diff(starts, append=values.shape[1])
    hit = signed == np.repeat(best, lengths, axis=1)
    place = np.where(hit, np.arange(values.shape[1]), values.shape[1])
    first = np.minimum.reduceat(place, starts, axis=1)
    worst = np.where(np.isneginf(best), np.nan, -best if low_is_bad else best)
    return worst, first
