"""How many elements each tensor lost to its format: estimated from histograms, of few tensors at a time, and kept."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.tails import WINDOW, most_likely_flushed
from ampdoctor_dashboard.data.held_in import formats_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ampdoctor.formats import NumberFormat
    from ampdoctor_dashboard.data.tensors import TensorIndex

AT_ONCE = 20_000
"""Tensors whose histograms are looked at together."""


class FlushedCounts:
    """The flushed elements of tensors, each estimated once.

    Args:
        index: all tensors; later states of the same run may follow.
    """

    def __init__(self, index: TensorIndex) -> None:
        self._index = index
        self._known: NDArray[np.float32] = np.zeros(0, np.float32)
        self._lock = threading.Lock()
        self.reach(index)

    def reach(self, index: TensorIndex) -> None:
        """Go on with a later state of the run; an earlier one is part of what is there."""
        with self._lock:
            more = len(index) - len(self._known)
            if more > 0:
                self._index = index
                self._known = np.concatenate([self._known, np.full(more, np.nan, np.float32)])

    def missing(self, rows: NDArray[np.intp]) -> int:
        """Return how many of the tensors at `rows` are still to be estimated."""
        return int(np.isnan(self._known[rows]).sum())

    def at(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the flushed elements of the tensors at `rows`; 0 of those that are all zero, where nobody can tell."""
        with self._lock:
            new = rows[np.isnan(self._known[rows])]
            formats = formats_of(self._index.sites) if len(new) else []
            for start in range(0, len(new), AT_ONCE):
                some = new[start : start + AT_ONCE]
                self._known[some] = self._estimated(some, formats)
            return self._known[rows].astype(np.float64)

    def _estimated(self, rows: NDArray[np.intp], formats: list[NumberFormat]) -> NDArray[np.float64]:
        sites = self._index.site[rows]
        found = np.zeros(len(rows))
        kinds: dict[tuple[NumberFormat, bool], list[int]] = {}
        for site in np.unique(sites).tolist():
            kinds.setdefault((formats[site], bool(self._index.sites[site].cast_to)), []).append(site)
        for (number_format, cast), members in kinds.items():
            here = np.flatnonzero(np.isin(sites, members))
            work = self._cast if cast else self._extrapolated
            found[here] = work(rows[here], number_format)
        return found

    def _cast(self, rows: NDArray[np.intp], number_format: NumberFormat) -> NDArray[np.float64]:
        """Return what a cast flushes: the values before it are known."""
        lowest, counts = self._index.histograms(rows)
        below: NDArray[np.float64] = counts[:, : max(0, number_format.flush_exponent - lowest)].sum(axis=1)
        return below.astype(np.float64)

    def _extrapolated(self, rows: NDArray[np.intp], number_format: NumberFormat) -> NDArray[np.float64]:
        edge, zeros = number_format.min_subnormal_exponent, self._index.at("zeros", rows)
        found = np.zeros(len(rows))
        some = np.flatnonzero(zeros > 0)
        windows = self._index.histograms(rows[some], (edge, edge + WINDOW)).counts.astype(np.float64)
        seen = windows.any(axis=1) if len(some) else np.zeros(0, bool)
        tails = most_likely_flushed(windows[seen], number_format.mantissa_bits)
        found[some[seen]] = np.minimum(tails, zeros[some[seen]])
        return found
