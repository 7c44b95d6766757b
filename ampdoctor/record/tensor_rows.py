"""The rows of `tensors` of one step, column by column: a row object for each would cost more than all the rest."""

from __future__ import annotations

from functools import cache, cached_property
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


KNOWN = (
    "micro_batch", "seq", "module", "role", "slot", "call", "dtype", "shape", "numel", "autocast", "grad_enabled",
    "cast_to",
)  # fmt: skip
"""The columns that are known when a tensor is met, in this order."""

_WIDTH = len(KNOWN)

Coded = tuple[list[Any], "NDArray[np.int64]"]
"""The different values of a column, and by row which of them it is."""


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
        known: the values of KNOWN, of one row after another in one list: an object for each row would keep Python's
            collector busy.
        later: what some of them know by now.
        measured: their statistics.
        values: the numbers that have arrived.
    """

    def __init__(
        self, step: int, known: Sequence[Any], later: Sequence[Later], measured: Measured, values: Values
    ) -> None:
        self.step = step
        self._known = known
        self._codes: dict[str, Coded] = {}
        self.numbers, self.counts = measured
        self._finite: list[bool] = (self.numbers[:, 1:4].sum(axis=1) == 0.0).tolist()
        self._later: dict[str, list[Any]] = {}
        for late in later:
            self._learn(late, values)

    def __len__(self) -> int:
        return len(self._known) // _WIDTH

    def column(self, name: str) -> Sequence[Any]:
        """Return one of KNOWN, by row."""
        return self._known[KNOWN.index(name) :: _WIDTH]

    def coded(self, name: str) -> Coded:
        """Return the same where few values are different: these, and by row which of them."""
        if name not in self._codes:
            column = self.column(name)
            values = list(dict.fromkeys(column))
            number = {value: code for code, value in enumerate(values)}
            self._codes[name] = values, np.fromiter(map(number.__getitem__, column), np.int64, len(column))
        return self._codes[name]

    @cached_property
    def numel(self) -> NDArray[np.int64]:
        """Elements, by row."""
        return np.array(self.column("numel"), np.int64)

    @property
    def zeros(self) -> NDArray[np.float64]:
        """Elements equal to zero, by row."""
        return self.numbers[:, 0]

    @property
    def absmax(self) -> NDArray[np.float64]:
        """Largest finite magnitude, by row."""
        return self.numbers[:, 4]

    @property
    def loss_scale(self) -> Sequence[float | None]:
        """The loss scale that multiplies the values, by row."""
        return self._later.get("loss_scale") or [None] * len(self)

    def batch(self) -> pa.RecordBatch:
        """Return the rows as Arrow has them."""
        columns = self._measured() | self._later
        return pa.RecordBatch.from_arrays([self._array(field, columns) for field in _SCHEMA], schema=_SCHEMA)

    def _array(self, field: pa.Field, columns: dict[str, Any]) -> pa.Array:
        if field.name in columns:
            return _array(columns[field.name], field)
        known = field.name in KNOWN
        return _array(self.column(field.name), field) if known else pa.nulls(len(self), field.type)

    def _learn(self, late: Later, values: Values) -> None:
        if late.inputs is not None:
            self.note("inputs_finite", late.row, all(map(self._finite.__getitem__, late.inputs)))
        if late.scale is not None:
            self.note("loss_scale", late.row, values.number(late.scale))
        if late.extra is not None:
            for name, number in zip(late.names, values.vector(late.extra).tolist(), strict=True):
                self.note(name, late.row, int(number) if name in _WHOLE else number)

    def note(self, column: str, row: int, value: Any) -> None:
        """Fill one more column of a row."""
        if column not in self._later:
            self._later[column] = [None] * len(self)
        self._later[column][row] = value

    def note_all(self, column: str, rows: range, value: Any) -> None:
        """Fill one more column of several rows in a row."""
        self.note(column, rows.start, value)
        self._later[column][rows.start : rows.stop] = [value] * len(rows)

    def _measured(self) -> dict[str, Any]:
        first, lengths = (self.numbers[:, column].astype(np.int64) for column in (HEADER, HEADER + 1))
        finite = self.numel - self.numbers[:, 1:4].sum(axis=1)
        return {
            "step": np.full(len(self), self.step), "numel": self.numel, "zeros": self.zeros,
            "nan": self.numbers[:, 1], "posinf": self.numbers[:, 2], "neginf": self.numbers[:, 3],
            "absmax": self.absmax, "subnormal": self._subnormal(first, lengths),
            "rms": np.sqrt(self.numbers[:, 5] / np.maximum(finite, 1.0)), "exp_lowest": first,
            "exp_counts": pa.ListArray.from_arrays(
                pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32()), pa.array(self.counts)
            ),
        }  # fmt: skip

    def _subnormal(self, first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return by row how many elements are below the smallest normal number of its dtype."""
        row = np.repeat(np.arange(len(self)), lengths)
        before = np.cumsum(lengths) - lengths
        exponents = first[row] + np.arange(len(row)) - before[row]
        dtypes, dtype = self.coded("dtype")
        edges = np.array([_edge(name) for name in dtypes])[dtype]
        below = np.where(exponents < edges[row], self.counts, 0)
        found: NDArray[np.float64] = np.bincount(row, weights=below, minlength=len(self)).astype(np.float64)
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
