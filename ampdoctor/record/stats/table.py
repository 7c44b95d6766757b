"""The statistics of the tensors of one step, a row each, in memory that the kernels write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.record.stats.cpu import measured_in_place
from ampdoctor.record.stats.layout import EXTRA
from ampdoctor.record.stats.torch_ops import statistics_vector

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_BLOCK = 256
"""Rows that memory is taken for at a time: half a megabyte."""

_ROW_BYTES = 8 * EXTRA


class StatisticsTable:
    """Rows of EXTRA float64 (see `layout`).

    Whoever fills them numbers them, from 0 up: an interrupt in between leaves no row that nobody knows of.
    """

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.float64]] = []
        self._addresses: list[int] = []

    def measure(self, row: int, tensor: torch.Tensor) -> None:
        """Fill a row with the statistics of a tensor on the CPU."""
        block, place = divmod(row, _BLOCK)
        if block == len(self._blocks):
            self._extend()
        if not measured_in_place(tensor, self._addresses[block] + place * _ROW_BYTES):
            self._blocks[block][place] = statistics_vector(tensor).numpy()

    def put(self, row: int, vector: NDArray[np.float64]) -> None:
        """Fill a row with a vector that has arrived from a device."""
        block, place = divmod(row, _BLOCK)
        while block >= len(self._blocks):
            self._extend()
        self._blocks[block][place] = vector

    def filled(self, rows: int) -> NDArray[np.float64]:
        """Return the first `rows` rows."""
        return np.concatenate(self._blocks)[:rows] if self._blocks else np.empty((0, EXTRA))

    def _extend(self) -> None:
        block = np.empty((_BLOCK, EXTRA))
        self._addresses.append(block.ctypes.data)
        self._blocks.append(block)
