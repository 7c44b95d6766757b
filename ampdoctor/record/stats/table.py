"""The statistics of the tensors of one step, a row each, in memory that the kernel writes to."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ampdoctor.record.stats import cpu
from ampdoctor.record.stats.layout import EXTRA, HEADER, decode
from ampdoctor.record.stats.torch_ops import statistics_vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

COLUMNS = HEADER + 2
"""Numbers of a row: those before the bins (`layout`), the exponent of the first bin, and how many bins follow."""

_BINS = EXTRA - HEADER
_ONE = struct.Struct("=3q")
FEW = 8
"""Tensors that are measured at once where modules are called."""

_ROWS = 256
"""Rows that memory is taken for at a time."""


class Measured(NamedTuple):
    """The statistics of all tensors of a step.

    Attributes:
        rows: (tensors, COLUMNS), float64.
        counts: the bins of all rows, one row's after another's.
    """

    rows: Vector
    counts: NDArray[np.int64]


class _Block:
    """Room for `size` rows and the bins that they may have; what is never written to takes no memory."""

    def __init__(self, first: int, size: int) -> None:
        self.first, self.size = first, size
        self.rows = np.zeros((size, COLUMNS))
        self.starts = np.zeros(size, np.int64)
        self.bins = np.empty(size * _BINS, np.int64)
        self.used = 0
        self._few = np.empty((FEW, 3), np.int64)
        self._memory = self._few.data
        self._at = self._few.ctypes.data
        self._addresses = self.rows.ctypes.data, self.starts.ctypes.data, self.bins.ctypes.data

    def measure(self, place: int, tensors: int, count: int) -> None:
        """Take the statistics of `count` tensors, described at the address `tensors`."""
        rows, starts, bins = self._addresses
        self.used = cpu.measure(  # type: ignore[misc]
            tensors, count, torch.get_num_threads(), rows + 8 * COLUMNS * place, starts + 8 * place, bins, self.used
        )

    def measure_few(self, place: int, tensors: list[torch.Tensor]) -> int:
        """Take those of at most FEW tensors; returns where they are described, 0 where one can't be read as it is."""
        count, at = len(tensors), self._at
        if cpu.measure is None or cpu.describe is None:
            return 0
        if cpu.describe(tensors, cpu.CLASSES, cpu.DTYPES, torch.strided, at) < count:
            return 0
        self.measure(place, at, count)
        return at

    def measure_one(self, place: int, described: cpu.Described) -> None:
        _ONE.pack_into(self._memory, 0, *described)  # a fifth of what numpy takes for one
        self.measure(place, self._at, 1)

    def put(self, place: int, vector: Vector) -> None:
        found = decode(vector)
        count = len(found.exp_counts)
        self.bins[self.used : self.used + count] = found.exp_counts
        self.rows[place] = [*vector[:HEADER], found.exp_lowest, count]
        self.starts[place] = self.used
        self.used += count

    def takes(self, row: int, count: int) -> bool:
        """Whether there is room for `count` rows from `row` on."""
        return row + count <= self.first + self.size and self.used + count * _BINS <= len(self.bins)

    def end_at(self, row: int) -> None:
        """Let the next block begin with `row`."""
        self.rows, self.starts = self.rows[: row - self.first], self.starts[: row - self.first]


class StatisticsTable:
    """Rows of a step.

    Whoever fills them numbers them, from 0 up: an interrupt in between leaves no row that nobody knows of.
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []

    def measure(self, row: int, tensor: torch.Tensor) -> None:
        """Fill a row with the statistics of a tensor on the CPU."""
        block = self._block(row, 1)
        if block.measure_few(row - block.first, [tensor]):
            return
        readable = cpu.readable(tensor)
        described = None if readable is None else cpu.described(readable)
        if described is not None:
            block.measure_one(row - block.first, described)
        else:
            block.put(row - block.first, statistics_vector(tensor).numpy())

    def measure_few(self, row: int, tensors: list[torch.Tensor]) -> int:
        """Fill the rows from `row` on with the statistics of at most FEW tensors.

        Returns the address where the kernel has described them; 0 where it can't read all of them as they are.
        """
        block = self._block(row, len(tensors))
        return block.measure_few(row - block.first, tensors)

    def measure_all(self, row: int, places: cpu.Places) -> None:
        """Fill the rows from `row` on with the statistics of tensors that the kernel reads as they are."""
        block = self._block(row, len(places))
        block.measure(row - block.first, places.ctypes.data, len(places))

    def filled(self, rows: int, later: dict[int, Vector]) -> Measured:
        """Return the first `rows` rows; those of `later` hold the vectors (`layout`) that have arrived by now."""
        for row, vector in later.items():
            block = next(b for b in reversed(self._blocks) if b.first <= row)
            block.put(row - block.first, vector)
        if not rows:
            return Measured(np.empty((0, COLUMNS)), np.empty(0, np.int64))
        bases = np.cumsum([0, *(b.used for b in self._blocks[:-1])])
        heads = np.concatenate([b.rows for b in self._blocks])[:rows]
        starts = np.concatenate([b.starts + base for b, base in zip(self._blocks, bases, strict=True)])[:rows]
        bins = np.concatenate([b.bins[: b.used] for b in self._blocks])
        lengths = heads[:, HEADER + 1].astype(np.int64)
        before = np.cumsum(lengths) - lengths
        return Measured(heads, bins[np.repeat(starts - before, lengths) + np.arange(lengths.sum())])

    def reserve(self, row: int) -> None:
        """Keep a row for a vector that will arrive from a device."""
        self._block(row, 1)

    def _block(self, row: int, count: int) -> _Block:
        if not self._blocks or not self._blocks[-1].takes(row, count):
            if self._blocks:
                self._blocks[-1].end_at(row)
            self._blocks.append(_Block(row, max(_ROWS, count)))
        return self._blocks[-1]
