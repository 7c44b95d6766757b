"""Which calls of a long run are judged: stretches at even distances, and each kind of step as it began and last was.

A training makes the same calls step after step, half a million times. What is cut out between two stretches is cut
where the steps before both its ends made the same calls: whoever follows the calls in order finds no seam. Stretches
are placed without looking, so that a share of the judged steps is one of all; the few kept for their kind hardly
change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ampdoctor.trace.schema.calls import STEPS
from ampdoctor.trace.selection import EACH_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

CALLS = 30_000
"""Rows of `calls` that are judged at most, save for what is rare: to follow them costs some 10 microseconds each."""

STRETCHES = 40

ALIKE = 16
"""Steps before a cut, at the least, that have to make the same calls as those before its other end; where an optimizer
steps more seldom, as many as it has from one of its steps to the next."""

KINDS = 200
"""Kinds that steps are kept of, the rarest: where a number differs on every step, each step is a kind of its own."""

_NOT_ITS_KIND = frozenset({"step", "seq"})

_ALWAYS = ("backward", "unscale", *STEPS, "update", "zero_grad")
"""Calls that are recorded on every step. Others are on examined steps only, or seldom."""

_NULL = 1 << 20
"""Added to what a number is coded as, so that none is 0, which is null."""

_OF_ZERO, _OF_NONFINITE = 2000, 3000
"""Beyond the exponents of FP64."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: spreads the bits of a number over a word (Knuth, TAOCP 6.4)."""


def judged_calls(calls: pa.Table, wanted: Iterable[int]) -> pa.Table:
    """Return the rows of the table `calls` that are judged: all of them, unless they are very many.

    Args:
        calls: the table, in any order.
        wanted: steps whose calls are wanted in any case; so are those of all calls that failed.
    """
    if calls.num_rows <= CALLS:
        return calls
    steps, seq = calls["step"].to_numpy(), calls["seq"].to_numpy()
    order = np.lexsort((seq, steps))
    steps = steps[order]
    begins = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1))
    numbers = steps[begins]
    kinds = _kinds(calls, set(calls.column_names) - _NOT_ITS_KIND)[order]
    failed = calls["step"].filter(calls["error"].is_valid()).to_pylist()
    kept = _wanted(numbers, _by_step(kinds, begins), calls.num_rows, {*wanted, *failed})
    always = pc.is_in(calls["call"], pa.array(_ALWAYS)).to_numpy()[order]
    outline = np.where(always, _kinds(calls, {"call", "target"})[order], np.uint64(0))
    _splice(kept, _contexts(_by_step(outline, begins), max(ALIKE, _longest_wait(calls, numbers) + 1)))
    return calls.filter(pa.array(np.isin(calls["step"].to_numpy(), numbers[kept])))


def _wanted(numbers: NDArray[np.int64], kinds: Hashes, rows: int, single: Iterable[int]) -> NDArray[np.bool_]:
    """Return of each step whether it is wanted: in a stretch, one of `single`, or of a rare kind."""
    count = len(numbers)
    length = max(CALLS * count // (rows * STRETCHES), 1)
    starts = np.linspace(0, max(count - length, 0), STRETCHES).round().astype(int)
    kept = np.zeros(count, bool)
    for start in starts:
        kept[start : start + length] = True
    for place in (*np.flatnonzero(np.isin(numbers, list(single))), *_rare(kinds)):
        kept[max(place - 1, 0) : place + 2] = True
    return kept


def _rare(kinds: Hashes) -> Iterator[int]:
    """Yield the places of the first and the last steps of each of the rarest kinds."""
    order = np.argsort(kinds, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(kinds[order])) + 1, len(order))
    groups = np.split(order, ends[:-1])
    for group in sorted(groups, key=len)[:KINDS]:
        yield from {*group[:EACH_END].tolist(), *group[-EACH_END:].tolist()}


def _splice(kept: NDArray[np.bool_], contexts: Hashes) -> None:
    """Keep more of what is to be cut out, so that each cut has alike steps before both its ends."""
    edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=1, append=1))
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if end == len(kept) or begin == 0:
            continue  # nothing follows, or nothing goes before
        alike = np.flatnonzero(contexts[begin:end] == contexts[begin - 1])
        kept[begin + (int(alike[-1]) + 1 if len(alike) else 0) : end] = True


def _longest_wait(calls: pa.Table, numbers: NDArray[np.int64]) -> int:
    """Return the most steps from one step of an optimizer to its next."""
    made = calls.filter(pc.is_in(calls["call"], pa.array(STEPS)))
    longest = 0
    for optimizer in made["target"].unique().to_pylist():
        own = made["step"].filter(pc.equal(made["target"], optimizer)) if optimizer is not None else None
        if own is not None and len(own) > 1:
            places = np.searchsorted(numbers, np.sort(own.to_numpy()))
            longest = max(longest, int(np.diff(places).max()))
    return longest


def _contexts(outlines: Hashes, length: int) -> Hashes:
    """Return for each step a hash of the calls of the `length` steps that end with it: a polynomial in `_MIX`."""
    rising = np.multiply.accumulate(np.full(len(outlines), _MIX))
    falling = np.multiply.accumulate(np.full(len(outlines), np.uint64(pow(int(_MIX), -1, 1 << 64))))
    sums = np.cumsum(outlines * falling)
    sums[length:] -= sums[:-length].copy() if length < len(sums) else 0
    found: Hashes = sums * rising
    return found


def _by_step(kinds: Hashes, begins: NDArray[np.intp]) -> Hashes:
    """Return a hash of each step's calls in their order; a call of kind 0 does not count."""
    counted = kinds != 0
    before = np.cumsum(counted) - counted
    place = before - np.repeat(before[begins], np.diff(begins, append=len(kinds)))
    hashes = np.where(counted, _mixed(kinds + place.astype(np.uint64)), np.uint64(0))
    return np.add.reduceat(hashes, begins)


def _kinds(calls: pa.Table, names: Iterable[str]) -> Hashes:
    """Return a hash of each row's values in the columns `names`; numbers count by their magnitude alone."""
    found = np.ones(calls.num_rows, np.uint64)
    for name in sorted(names):
        column = calls[name]
        if column.null_count < len(column):
            found = _mixed(found * _MIX + _codes(column, exact=name.endswith("line")))
    return found


def _codes(column: pa.ChunkedArray, *, exact: bool) -> Hashes:
    kind = column.type
    if pa.types.is_list(kind):
        column, kind = pc.binary_join(column, "\n"), kind.value_type
    if pa.types.is_string(kind):
        encoded = pc.dictionary_encode(column, null_encoding="encode").unify_dictionaries().combine_chunks()
        return np.asarray(encoded.indices.to_numpy(), np.uint64) + np.uint64(1)
    missing = column.is_null().to_numpy()
    values = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0).to_numpy()
    known = values if exact else _magnitudes(values)
    return np.where(missing, np.uint64(0), (known.astype(np.int64) + _NULL).view(np.uint64))


def _magnitudes(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return numbers that differ where `values` differ by more than a factor of two, or one of them is not finite."""
    exponents = np.frexp(np.nan_to_num(values))[1].astype(np.int64)
    exponents[values == 0.0] = _OF_ZERO
    exponents[~np.isfinite(values)] = _OF_NONFINITE
    return exponents


def _mixed(values: Hashes) -> Hashes:
    values = (values ^ (values >> np.uint64(32))) * _MIX
    mixed: Hashes = values ^ (values >> np.uint64(29))
    return mixed
