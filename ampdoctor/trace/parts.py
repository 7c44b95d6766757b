"""Tensors that were spread over ranks, put together again: every rank has recorded the part that it held.

Counts by exponent add up, so nothing is lost by that. Numbers that compare elements with others (cosines and the like)
do not; of those the whole has the mean over its parts, each weighted by its elements.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ampdoctor.histogram import merge
from ampdoctor.trace.histograms import histogram_of
from ampdoctor.trace.rows import as_rows
from ampdoctor.trace.schema import TABLES, TensorRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ADDED = ("expected_to_move", "unchanged", "small_updates", "small_updates_moved")
_MEANS = ("energy_unchanged", "square_cosine", "square_ratio", "sum_cosine", "sum_norm_ratio")

_Key = tuple[object, ...]


class Joined(NamedTuple):
    """A table `tensors` without parts.

    Attributes:
        table: the table, its rows in the order in which they were.
        incomplete: tensors of which some part was not recorded; they are what is known of them.
    """

    table: pa.Table
    incomplete: int


def spread(table: pa.Table) -> bool:
    """Whether any tensor of the table `tensors` is a part of one that was spread over ranks."""
    return bool(table["part"].null_count < table.num_rows)


def joined(table: pa.Table, others: Iterable[pa.Table]) -> Joined:
    """Put together the parts in `table`, of one rank, with those that other ranks held.

    Args:
        table: the table `tensors` of one rank.
        others: those of other ranks; no more of them are read than it takes to find all parts.
    """
    own = _parts_in(table)
    found = {key: {row.part: row} for key, row in own.items()}
    for other in others:
        for key, row in _parts_in(other).items():
            if key in found:
                found[key].setdefault(row.part, row)
        if not _incomplete(found):
            break
    whole = [_whole(list(found[key].values()), row) for key, row in own.items()]
    return Joined(_replaced(table, pc.is_valid(table["part"]).to_pylist(), whole), _incomplete(found))


def _incomplete(found: dict[_Key, dict[int | None, TensorRow]]) -> int:
    """Count the tensors of which a part is missing."""
    return sum(len(held) < (row.parts or 1) for held in found.values() for row in list(held.values())[:1])


def _parts_in(table: pa.Table) -> dict[_Key, TensorRow]:
    """Return the parts by what they agree in on all ranks; a site measured several times counts as it came."""
    keyed: dict[_Key, TensorRow] = {}
    times: dict[_Key, int] = {}
    for row in as_rows(table.filter(pc.is_valid(table["part"])), TensorRow):
        key = (row.step, row.micro_batch, row.module, row.role, row.slot, row.call, row.dtype)
        keyed[(*key, times.get(key, 0))] = row
        times[key] = times.get(key, 0) + 1
    return keyed


def _whole(parts: Sequence[TensorRow], own: TensorRow) -> TensorRow:
    """Return the row of the tensor that `parts` make up, otherwise as the row that `own`'s rank has of it."""
    complete = len(parts) >= (own.parts or 1)
    if len(parts) == 1 and not complete:
        return own
    total = merge(histogram_of(part) for part in parts)
    counted: dict[str, Any] = {name: _sum([getattr(part, name) for part in parts]) for name in _ADDED}
    means: dict[str, Any] = {name: _mean(parts, name) for name in _MEANS}
    drawn = any(part.sampled is not None for part in parts)
    return replace(
        own, **counted, **means,
        numel=sum(part.numel for part in parts), zeros=total.zeros, nan=total.nan, posinf=total.posinf,
        neginf=total.neginf, subnormal=sum(part.subnormal for part in parts), absmax=total.absmax, rms=total.rms,
        exp_lowest=int(total.lowest), exp_counts=total.counts.tolist(),
        sampled=sum(p.numel if p.sampled is None else p.sampled for p in parts) if drawn else None,
        sample_error=max((p.sample_error for p in parts if p.sample_error is not None), default=None),
        shape=own.whole_shape if complete and own.whole_shape is not None else own.shape,
        part=None if complete else own.part, parts=None if complete else own.parts,
        whole_shape=None if complete else own.whole_shape,
    )  # fmt: skip


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _mean(parts: Sequence[TensorRow], name: str) -> float | None:
    known = [(part.numel, value) for part in parts if (value := getattr(part, name)) is not None]
    weight = sum(numel for numel, _ in known)
    return math.fsum(numel * value for numel, value in known) / weight if weight else None


def _replaced(table: pa.Table, mask: Sequence[bool], rows: Sequence[TensorRow]) -> pa.Table:
    """Return `table` with `rows` in the places where `mask` says so."""
    names = [field.name for field in fields(TensorRow)]
    made = pa.Table.from_pylist([{n: getattr(r, n) for n in names} for r in rows], TABLES["tensors"].arrow)
    places = iter(range(table.num_rows, table.num_rows + len(rows)))
    order = [next(places) if replaced else place for place, replaced in enumerate(mask)]
    return pa.concat_tables([table, made]).take(order)
