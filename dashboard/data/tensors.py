"""All recorded tensors by site and step, in memory as small as they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ampdoctor_dashboard.data.packed import Column, Counts, Histograms

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INTEGERS = ("numel", "zeros", "subnormal", "nonfinite")

NUMBERS = ("numel", "zeros", "subnormal", "absmax", "rms", "loss_scale")
"""Columns that are kept as they are."""

COLUMNS = (
    "step", "module", "role", "slot", "dtype", "nan", "posinf", "neginf", "exp_lowest", "exp_counts", "cast_to",
    *NUMBERS,
)  # fmt: skip
"""Columns that are read."""

ROWS_AT_ONCE = 100_000
"""Rows that are taken in at a time: read whole, a long table would need its memory twice."""


class Site(NamedTuple):
    """Where tensors were measured, and which.

    Attributes:
        module: module path; empty for the root.
        role: activation, grad_output, weight, ...
        slot: out, cast, weight, weight.exp_avg, ...
        dtype: torch dtype of its first tensor.
        cast_to: dtype that a gradient is cast to next (slot cast); empty for the others.
    """

    module: str
    role: str
    slot: str
    dtype: str
    cast_to: str = ""

    @property
    def name(self) -> str:
        """The site as people read it."""
        return f"{self.module}.{self.slot}" if self.module else self.slot

    @property
    def key(self) -> str:
        """The site as addresses hold it: role and name."""
        return f"{self.role}:{self.name}"


class TensorIndex:
    """All tensors of a run up to some moment, in the order in which they were recorded.

    Attributes:
        sites: all sites, in the order in which they were first seen: that of the model.
        derived: what was worked out of the tensors, by name; later states of the run share it.
    """

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self.derived: dict[str, Any] = {}
        self._columns = {name: Column(np.int32 if name in _INTEGERS else np.float32) for name in _KEPT}
        self._step, self._site = Column(np.int32), Column(np.int32)
        self._histograms = Histograms()
        self._by_role: dict[str, tuple[int, NDArray[np.intp]]] = {}

    def __len__(self) -> int:
        return len(self._step.values)

    def frozen(self) -> TensorIndex:
        """Return all tensors so far: that stays as it is, whatever is added to this one."""
        now = TensorIndex()
        now.sites, now.derived, now._by_role = [*self.sites], self.derived, self._by_role
        now._columns = {name: column.frozen() for name, column in self._columns.items()}
        now._step, now._site, now._histograms = self._step.frozen(), self._site.frozen(), self._histograms.frozen()
        return now

    @property
    def step(self) -> NDArray[Any]:
        """The step of each tensor."""
        return self._step.values

    @property
    def site(self) -> NDArray[Any]:
        """The number of each tensor's site in `sites`."""
        return self._site.values[: len(self)]

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one of NUMBERS, or nonfinite; NaN where it is null."""
        return self._columns[name].values[: len(self)].astype(np.float64)

    def at(self, name: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return a column at some rows: of a long run much less work than all of it."""
        return self._columns[name].values[rows].astype(np.float64)

    def find(self, key: str) -> int | None:
        """Return the number of the site with this key."""
        return next((n for n, site in enumerate(self.sites) if site.key == key), None)

    def rows_of(self, site: int) -> NDArray[np.intp]:
        """Return the places of a site's tensors, in order."""
        return np.flatnonzero(self.site == site)

    def rows_of_role(self, role: str) -> NDArray[np.intp]:
        """Return the places of the tensors of a role, in order; they are looked for once."""
        known, rows = self._by_role.get(role, (0, np.zeros(0, np.intp)))
        length = len(self)
        if known > length:  # looked for in a later state of the run
            return rows[: np.searchsorted(rows, length)]
        if known < length:
            wanted = np.array([site.role == role for site in self.sites], bool)
            rows = np.concatenate([rows, np.flatnonzero(wanted[self.site[known:length]]) + known])
            self._by_role[role] = (length, rows)
        return rows

    def histograms(self, rows: NDArray[np.intp], window: tuple[int, int] | None = None) -> Counts:
        """Return the exponent histograms of the tensors at `rows`, on one axis of exponents.

        Args:
            rows: places of tensors.
            window: first exponent, and the one after the last; all that occur without.
        """
        if not len(rows):
            return Counts(0, np.zeros((0, 1), np.int64))
        return self._histograms.at(rows, window)


class GrowingIndex(TensorIndex):
    """An index that goes on growing; readers are given what is `frozen` of it, which never changes."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[tuple[str, str, str], int] = {}

    def add(self, table: pa.Table) -> None:
        """Add what was read of the table `tensors`."""
        for column in _KEPT:
            if column != "nonfinite":
                self._columns[column].extend(_numbers(table[column]))
        nan, posinf, neginf = (_numbers(table[n]) for n in ("nan", "posinf", "neginf"))
        self._columns["nonfinite"].extend(nan + posinf + neginf)
        lists = pa.chunked_array([pa.array([], pa.list_(pa.int64())), *table["exp_counts"].chunks]).combine_chunks()
        lengths = np.diff(lists.offsets.to_numpy()).astype(np.int64)
        self._histograms.extend(table["exp_lowest"].to_numpy(), lengths, lists.flatten().to_numpy())
        self._site.extend(self._sites_of(table))
        self._step.extend(table["step"].to_numpy())

    def _sites_of(self, table: pa.Table) -> NDArray[np.int32]:
        """Return each row's site, known or new."""
        codes, words = zip(*(_encoded(table[name]) for name in ("module", "role", "slot")), strict=True)
        combined = (codes[0].astype(np.int64) * len(words[1]) + codes[1]) * len(words[2]) + codes[2]
        different, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
        numbers = np.zeros(len(different), np.int32)
        for place in np.argsort(first):
            row = int(first[place])
            key = tuple(w[c[row]] for w, c in zip(words, codes, strict=True))
            numbers[place] = self._number(key, table, row)
        return numbers[inverse]

    def _number(self, key: tuple[str, ...], table: pa.Table, row: int) -> int:
        module, role, slot = key
        number = self._numbers.setdefault((module, role, slot), len(self.sites))
        if number == len(self.sites):
            dtype, cast_to = (table[name][row].as_py() or "" for name in ("dtype", "cast_to"))
            self.sites.append(Site(module, role, slot, dtype, cast_to))
        return number


_KEPT = (*NUMBERS, "nonfinite")


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column as it is, or as floats with NaN for null."""
    if column.null_count or pa.types.is_floating(column.type):
        found: NDArray[Any] = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return found
    return np.asarray(column.to_numpy())


def _encoded(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], list[str]]:
    """Return a column of text as numbers, and the words that they stand for."""
    encoded = column.combine_chunks().dictionary_encode()
    array = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    return array.indices.to_numpy(), array.dictionary.to_pylist()
