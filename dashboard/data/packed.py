"""Columns that grow, in as few bytes as their values need: ten million rows have to fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

SPARE = 1.25
"""What is made room for, over what is needed."""

BLOCK_VALUES = 4_000_000
"""Entries of histograms that are kept in one piece."""

WIDEST = 1100
"""No float has an exponent beyond this; what a damaged trace says of others is left out."""

CLOSE = 1e-6
"""A float is kept in single precision where that is closer than this, relatively."""


class Column:
    """Numbers that are added at the end.

    Args:
        dtype: what they are kept in until one does not fit: int32 gives way to int64, float32 to float64.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._held: NDArray[Any] = np.zeros(0, dtype)
        self._length = 0

    def extend(self, values: NDArray[Any]) -> None:
        """Add values."""
        end = self._length + len(values)
        dtype = self._held.dtype if _fits(values, self._held.dtype) else np.dtype(f"{self._held.dtype.kind}8")
        if end > len(self._held) or dtype != self._held.dtype:
            held = np.empty(max(end, int(self._length * SPARE)), dtype)
            held[: self._length] = self._held[: self._length]
            self._held = held
        self._held[self._length : end] = values
        self._length = end

    def frozen(self) -> Column:
        """Return what there is now: it stays as it is, whatever is added to this one."""
        now = Column(self._held.dtype)
        now._held, now._length = self.values, self._length  # what comes is written behind it, or into another array
        return now

    @property
    def values(self) -> NDArray[Any]:
        """All that was added."""
        return self._held[: self._length]


def _fits(values: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    if dtype.itemsize == 8 or not len(values):
        return True
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        return bool(values.min() >= limits.min and values.max() <= limits.max)
    with np.errstate(over="ignore", invalid="ignore"):
        kept = values.astype(dtype).astype(np.float64)
        return bool(np.all((np.abs(kept - values) <= CLOSE * np.abs(values)) | ~np.isfinite(values)))


class Counts(NamedTuple):
    """The exponent histograms of several tensors.

    Attributes:
        lowest: exponent of the first column.
        counts: tensors x exponents.
    """

    lowest: int
    counts: NDArray[np.int64]


class _Block(NamedTuple):
    first: int
    offsets: NDArray[np.int32]
    values: NDArray[Any]


class Histograms:
    """Exponent histograms that are added at the end."""

    def __init__(self) -> None:
        self._lowest = Column(np.int16)
        self._blocks: tuple[_Block, ...] = ()

    def extend(self, lowest: NDArray[np.int64], lengths: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        """Add histograms: of each the lowest exponent and the number of entries, and the entries of all of them."""
        first = len(self._lowest.values)
        kept = values.astype(next((d for d in (np.int16, np.int32) if _fits(values, np.dtype(d))), np.int64))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        below, last = self._blocks, _Block(first, offsets, kept)
        # A pile of a few large blocks: each is added to at most a few times, however often little comes in.
        while below and len(below[-1].values) < min(2 * len(last.values), BLOCK_VALUES):
            low, below = below[-1], below[:-1]
            offsets = np.concatenate([low.offsets, last.offsets[1:] + low.offsets[-1]]).astype(np.int32)
            last = _Block(low.first, offsets, np.concatenate([low.values, last.values]))
        self._blocks = (*below, last)
        self._lowest.extend(lowest)

    def frozen(self) -> Histograms:
        """Return what there is now: it stays as it is, whatever is added to this one."""
        now = Histograms()
        now._lowest, now._blocks = self._lowest.frozen(), self._blocks
        return now

    def at(self, rows: NDArray[np.intp], window: tuple[int, int] | None = None) -> Counts:
        """Return the histograms at `rows`, of the exponents from `window[0]` up to before `window[1]` or of all."""
        blocks = self._blocks
        lowest = self._lowest.values[rows].astype(np.int64)
        number = np.searchsorted([b.first for b in blocks], rows, "right") - 1
        lengths = np.zeros(len(rows), np.int64)
        begins = np.zeros(len(rows), np.int64)
        for one in np.unique(number):
            here = np.flatnonzero(number == one)
            place = rows[here] - blocks[one].first
            begins[here] = blocks[one].offsets[place]
            lengths[here] = blocks[one].offsets[place + 1] - begins[here]
        first, end = window if window is not None else _span(lowest, lengths)
        counts = np.zeros((len(rows), max(end - first, 1)), np.int64)
        for one in np.unique(number):
            here = np.flatnonzero(number == one)
            _fill(counts, here, blocks[one].values, begins[here], lengths[here], lowest[here] - first)
        return Counts(first, counts)


def _span(lowest: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[int, int]:
    filled = lengths > 0
    if not filled.any():
        return 0, 1
    first, end = int(lowest[filled].min()), int((lowest + lengths)[filled].max())
    return max(first, -WIDEST), min(max(end, first + 1), WIDEST)


def _fill(
    counts: NDArray[np.int64],
    here: NDArray[np.intp],
    values: NDArray[Any],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    shift: NDArray[np.int64],
) -> None:
    """Put the entries of some histograms into their lines of `counts`, those outside of it left out."""
    if not lengths.any():
        return
    skipped = np.minimum(np.maximum(-shift, 0), lengths)
    kept = np.maximum(np.minimum(lengths, counts.shape[1] - shift) - skipped, 0)
    ends = np.cumsum(kept)
    within = np.arange(int(ends[-1])) - np.repeat(ends - kept, kept)
    line = np.repeat(here, kept)
    counts[line, np.repeat(shift + skipped, kept) + within] = values[np.repeat(begins + skipped, kept) + within]
