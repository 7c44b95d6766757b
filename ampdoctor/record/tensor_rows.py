"""The rows of `tensors` of one step, column by column: a row object for each would cost more than all the rest."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ampdoctor.formats import format_of_dtype
from ampdoctor.record.stats import HEADER
from ampdoctor.trace.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ampdoctor.record.log import Deferred, Scalar, Values
    from ampdoctor.record.stats import Measured

_SCHEMA = TABLES["tensors"].arrow

_WHOLE = {field.name for field in _SCHEMA if pa.types.is_integer(field.type)}


class Known(NamedTuple):
    """What is known of a row when its tensor is met, in the order of the columns of the same names."""

    micro_batch: int
    seq: int
    module: str
    role: str
    slot: str
    call: int
    dtype: str
    shape: tuple[int, ...]
    numel: int
    autocast: str | None
    grad_enabled: bool
    cast_to: str | None


class Later(NamedTuple):
    """What a row will know once the step's numbers have arrived.

    Attributes:
        row: the row's number.
        inputs: rows of the tensors that went into it; None where that is not recorded.
        scale: loss scale that multiplies the values.
        extra: numbers for further columns.
        names: those columns.
    """

    row: int
    inputs: Sequence[int] | None
    scale: Scalar
    extra: Deferred | None
    names: Sequence[str]


class TensorRows:
    """The finished rows of one step.

    Args:
        step: the step.
        known: what was known of each when its tensor was met.
        later: what some of them know by now.
        measured: their statistics.
        values: the numbers that have arrived.
    """

    def __init__(
        self, step: int, known: Sequence[Known], later: Sequence[Later], measured: Measured, values: Values
    ) -> None:
        self.step = step
        self.known = known
        self.numbers, self.counts = measured
        self._finite = self.numbers[:, 1:4].sum(axis=1) == 0.0
        self._later: dict[str, list[Any]] = {}
        for late in later:
            self._learn(late, values)

    @property
    def zeros(self) -> NDArray[np.float64]:
        """Elements equal to zero, by row."""
        return self.numbers[:, 0]

    @property
    def absmax(self) -> NDArray[np.float64]:
        """Largest finite magnitude, by row."""
        return self.numbers[:, 4]

    def loss_scale(self, row: int) -> float | None:
        """Return the loss scale that multiplies the values of a row."""
        column = self._later.get("loss_scale")
        found: float | None = column[row] if column else None
        return found

    def batch(self) -> pa.RecordBatch:
        """Return the rows as Arrow has them."""
        columns = self._known_columns() | self._measured() | self._later
        length = len(self.known)
        arrays = [
            _array(columns[field.name], field) if field.name in columns else pa.nulls(length, field.type)
            for field in _SCHEMA
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)

    def _learn(self, late: Later, values: Values) -> None:
        if late.inputs is not None:
            self.note("inputs_finite", late.row, bool(self._finite[list(late.inputs)].all()))
        if late.scale is not None:
            self.note("loss_scale", late.row, values.number(late.scale))
        if late.extra is not None:
            for name, number in zip(late.names, values.vector(late.extra).tolist(), strict=True):
                self.note(name, late.row, int(number) if name in _WHOLE else number)

    def note(self, column: str, row: int, value: Any) -> None:
        """Fill one more column of a row."""
        if column not in self._later:
            self._later[column] = [None] * len(self.known)
        self._later[column][row] = value

    def _known_columns(self) -> dict[str, Any]:
        known = self.known
        # Not zip(*known): with thousands of arguments it takes ten times as long.
        columns = {name: [row[place] for row in known] for place, name in enumerate(Known._fields)}
        return {"step": np.full(len(known), self.step), **columns}

    def _measured(self) -> dict[str, Any]:
        first, lengths = (self.numbers[:, column].astype(np.int64) for column in (HEADER, HEADER + 1))
        numel = np.array([row.numel for row in self.known])
        finite = numel - self.numbers[:, 1:4].sum(axis=1)
        return {
            "zeros": self.zeros, "nan": self.numbers[:, 1], "posinf": self.numbers[:, 2],
            "neginf": self.numbers[:, 3], "absmax": self.absmax, "subnormal": self._subnormal(first, lengths),
            "rms": np.sqrt(self.numbers[:, 5] / np.maximum(finite, 1.0)), "exp_lowest": first,
            "exp_counts": pa.ListArray.from_arrays(
                pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32()), pa.array(self.counts)
            ),
        }  # fmt: skip

    def _subnormal(self, first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return by row how many elements are below the smallest normal number of its dtype."""
        row = np.repeat(np.arange(len(self.known)), lengths)
        before = np.cumsum(lengths) - lengths
        exponents = first[row] + np.arange(len(row)) - before[row]
        edges = np.array([_edge(known.dtype) for known in self.known])
        below = np.where(exponents < edges[row], self.counts, 0)
        found: NDArray[np.float64] = np.bincount(row, weights=below, minlength=len(self.known)).astype(np.float64)
        return found


@cache
def _edge(dtype: str) -> int:
    """Return the exponent of the smallest normal number of `dtype`."""
    number_format = format_of_dtype(dtype)
    return number_format.min_exponent if number_format else -(1 << 20)


def _array(values: Any, field: pa.Field) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray):
        return pa.array(values.astype(np.int64) if pa.types.is_integer(field.type) else values, field.type)
    if pa.types.is_list(field.type) and not field.nullable:
        ends = np.cumsum([0, *map(len, values)])
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), pa.array(list(chain(*values)), field.type.value_type)
        )
    return pa.array(values, field.type)
