"""The steps of a run as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Steps:
    """All steps so far. Numbers are NaN where nothing was measured.

    Args:
        table: the table `steps`.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.step: NDArray[np.int64] = table["step"].to_numpy()

    def __len__(self) -> int:
        return len(self.step)

    def column(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers or yes and no, as floats; NaN where it is null."""
        values = self._table[name]
        if pa.types.is_boolean(values.type):
            values = pc.cast(values, pa.int8())
        found: NDArray[np.float64] = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return found

    def words(self, name: str) -> list[str | None]:
        """Return a column of text."""
        values: list[str | None] = self._table[name].to_pylist()
        return values

    @property
    def examined(self) -> NDArray[np.int64]:
        """The steps on which tensors were recorded."""
        return self._where("examined", 1.0)

    @property
    def skipped(self) -> NDArray[np.int64]:
        """The steps that the scaler skipped, or that changed nothing."""
        return self._where("applied", 0.0)

    @property
    def typical_wall_ms(self) -> float:
        """The median duration of a step; 0 without any."""
        return float(np.nanmedian(self.column("wall_ms"))) if len(self) else 0.0

    @property
    def elapsed_s(self) -> NDArray[np.float64]:
        """Seconds from the first step's end to each."""
        time = self.column("time")
        return time - time[0] if len(time) else time

    def _where(self, name: str, value: float) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.step[self.column(name) == value]
        return found
