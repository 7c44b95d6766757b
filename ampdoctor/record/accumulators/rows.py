"""Sums of one step, added up by the line that made them, and their rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from ampdoctor.record.callsite import CallSite, shortened
from ampdoctor.trace.schema import AccumulatorRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.record.log import Deferred, StepLog, Values


class Group(NamedTuple):
    """What sums agree in that are added up."""

    source: CallSite
    op: str
    kind: str
    added: str | None
    dtype: str
    rate: float | None
    lasting: bool


@dataclass
class _Sums:
    """The sums of one group so far, by device."""

    calls: int = 0
    totals: set[frozenset[object]] = field(default_factory=set)
    vectors: dict[torch.device, torch.Tensor] = field(default_factory=dict)
    compensated: bool = False

    def add(self, vector: torch.Tensor) -> None:
        """Add the numbers of one sum; the last of them is a largest magnitude."""
        known = self.vectors.get(vector.device)
        if known is not None:
            largest = torch.maximum(known[-1:], vector[-1:])
            vector = torch.cat([known[:-1] + vector[:-1], largest])
        self.vectors[vector.device] = vector
        self.calls += 1


class SumRows:
    """The rows of one step."""

    def __init__(self) -> None:
        self._groups: dict[Group, _Sums] = {}
        self._of_total: dict[object, _Sums] = {}

    def add(self, group: Group, vector: torch.Tensor, totals: Iterable[object], identity: frozenset[object]) -> None:
        """Add the numbers of one sum into any of `totals`, which are addresses; `identity` tells it from others."""
        sums = self._groups.setdefault(group, _Sums())
        sums.add(vector)
        sums.totals.add(identity)
        self._of_total.update(dict.fromkeys(totals, sums))

    def compensate(self, totals: Iterable[object]) -> None:
        """What rounding took of `totals` is asked for."""
        for total in totals:
            if total in self._of_total:
                self._of_total[total].compensated = True

    def queue(self, log: StepLog) -> None:
        """Queue all rows."""
        for group, sums in self._groups.items():
            keys = [log.keep(vector) for vector in sums.vectors.values()]
            log.row("accumulators", partial(_row, log.step, group, sums, keys))


def _row(step: int, group: Group, sums: _Sums, keys: Sequence[Deferred], values: Values) -> AccumulatorRow:
    parts = [values.vector(key).tolist() for key in keys]
    numel, nonzero, absorbed, squares, lost = (sum(p[n] for p in parts) for n in range(5))
    return AccumulatorRow(
        step=step, **shortened(group.source)._asdict(), op=group.op, kind=group.kind, added=group.added,
        dtype=group.dtype, calls=sums.calls, totals=len(sums.totals), numel=int(numel), nonzero=int(nonzero),
        absorbed=int(absorbed), energy_absorbed=lost / squares if squares else None,
        increment=(squares / numel) ** 0.5 if numel else None,
        absmax=max(p[5] for p in parts), rate=group.rate, lasting=group.lasting, compensated=sums.compensated,
    )  # fmt: skip
