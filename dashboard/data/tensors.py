"""All recorded tensors by site and step: small columns in memory, histograms where they lie in the mapped file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMBERS = ("numel", "zeros", "subnormal", "absmax", "rms", "loss_scale")
"""Columns that are kept as they are."""

COLUMNS = (
    "step", "module", "role", "slot", "dtype", "nan", "posinf", "neginf", "exp_lowest", "exp_counts", "cast_to",
    *NUMBERS,
)  # fmt: skip
"""Columns that are read."""


class Site(NamedTuple):
    """Where tensors were measured, and which.

    Attributes:
        module: module path; empty for the root.
        role: activation, grad_output, weight, ...
        slot: out, cast, weight, weight.exp_avg, ...
        dtype: torch dtype of its first tensor.
    """

    module: str
    role: str
    slot: str
    dtype: str

    @property
    def name(self) -> str:
        """The site as people read it."""
        return f"{self.module}.{self.slot}" if self.module else self.slot

    @property
    def key(self) -> str:
        """The site as addresses hold it: role and name."""
        return f"{self.role}:{self.name}"


class Counts(NamedTuple):
    """The exponent histograms of several tensors.

    Attributes:
        lowest: exponent of the first column.
        counts: tensors x exponents.
    """

    lowest: int
    counts: NDArray[np.int64]


@dataclass
class _Part:
    """The rows that came in at one time."""

    columns: dict[str, NDArray[np.float64]]
    step: NDArray[np.int64]
    site: NDArray[np.int32]
    histograms: pa.Table


class TensorIndex:
    """All tensors of a run so far, in the order in which they were recorded.

    Attributes:
        sites: all sites, in the order in which they were first seen: that of the model.
    """

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._parts: list[_Part] = []

    def __len__(self) -> int:
        return sum(len(part.step) for part in self._parts)

    def add(self, table: pa.Table) -> None:
        """Add what was read of the table `tensors`."""
        columns = {name: _floats(table[name]) for name in NUMBERS}
        columns["nonfinite"] = sum((_floats(table[n]) for n in ("nan", "posinf", "neginf")), np.zeros(table.num_rows))
        histograms = table.select(["exp_lowest", "exp_counts"])
        step = table["step"].to_numpy().astype(np.int64)
        self._parts.append(_Part(columns, step, self._sites_of(table), histograms))

    @property
    def step(self) -> NDArray[np.int64]:
        """The step of each tensor."""
        self._join()
        return self._parts[0].step if self._parts else np.zeros(0, np.int64)

    @property
    def site(self) -> NDArray[np.int32]:
        """The number of each tensor's site in `sites`."""
        self._join()
        return self._parts[0].site if self._parts else np.zeros(0, np.int32)

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one of NUMBERS, or nonfinite; NaN where it is null."""
        self._join()
        return self._parts[0].columns[name] if self._parts else np.zeros(0)

    def find(self, key: str) -> int | None:
        """Return the number of the site with this key."""
        return next((n for n, site in enumerate(self.sites) if site.key == key), None)

    def rows_of(self, site: int) -> NDArray[np.intp]:
        """Return the places of a site's tensors, in order."""
        return np.flatnonzero(self.site == site)

    def histograms(self, rows: NDArray[np.intp]) -> Counts:
        """Return the exponent histograms of the tensors at `rows`, on one axis of exponents."""
        self._join()
        if not len(rows):
            return Counts(0, np.zeros((0, 1), np.int64))
        chunks = self._parts[0].histograms.to_batches()
        ends = np.cumsum([chunk.num_rows for chunk in chunks])
        found = [_one(chunks, ends, int(row)) for row in rows]
        filled = [(low, len(counts)) for low, counts in found if len(counts)]
        lowest = min((low for low, _ in filled), default=0)
        width = max((low + size for low, size in filled), default=1) - lowest
        counts = np.zeros((len(rows), width), np.int64)
        for place, (low, values) in enumerate(found):
            counts[place, low - lowest : low - lowest + len(values)] = values
        return Counts(lowest, counts)

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
            self.sites.append(Site(module, role, slot, table["dtype"][row].as_py()))
        return number

    def _join(self) -> None:
        """Put the parts together: they come in often and are read seldom."""
        if len(self._parts) < 2:
            return
        parts, names = self._parts, self._parts[0].columns
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
        step, site = (np.concatenate([getattr(part, name) for part in parts]) for name in ("step", "site"))
        self._parts = [_Part(columns, step, site, pa.concat_tables([part.histograms for part in parts]))]


def _one(chunks: list[pa.RecordBatch], ends: NDArray[np.int64], row: int) -> tuple[int, NDArray[np.int64]]:
    number = int(np.searchsorted(ends, row, "right"))
    chunk = chunks[number]
    place = row - int(ends[number]) + chunk.num_rows
    counts: NDArray[np.int64] = chunk["exp_counts"][place].values.to_numpy()
    return int(chunk["exp_lowest"][place].as_py()), counts


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    found: NDArray[np.float64] = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    return found


def _encoded(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], list[str]]:
    """Return a column of text as numbers, and the words that they stand for."""
    encoded = column.combine_chunks().dictionary_encode()
    array = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    return array.indices.to_numpy(), array.dictionary.to_pylist()
