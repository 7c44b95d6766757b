"""A ledger as rows of the tables `memory` and `timings`."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import torch

from ampdoctor.record.ledger.allocator import allocator_peaks
from ampdoctor.record.ledger.storages import totals
from ampdoctor.record.tensors import HALVES, dtype_name
from ampdoctor.trace.schema import COPY, MemoryRow, TimingRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ampdoctor.record.ledger.ledger import Ledger
    from ampdoctor.record.ledger.storages import Moment, Storages
    from ampdoctor.record.ledger.timings import Timings, Total, Work

_PLACED = frozenset({"activations"})
"""Components whose modules are told; of the others they would be too many rows of too little."""

_NAMED = frozenset({"optimizer", "activations"})
"""Components whose kinds are told."""

_HALF_NAMES = frozenset(map(dtype_name, HALVES))


def memory_rows(ledger: Ledger, step: int) -> Iterator[MemoryRow]:
    """Yield what lived at each named moment and at the peak of each device."""
    _note_copies(ledger)
    for phase in dict.fromkeys(mark.phase for mark in ledger.marks):
        marks = [mark for mark in ledger.marks if mark.phase == phase]
        moments = [(mark, ledger.storages.at(mark.moment)) for mark in marks]
        # Of several micro-batches the one that took most: gradients are there from the second on.
        mark, most = max(moments, key=lambda pair: sum(n for _, n in totals(pair[1])))
        yield from _rows(most, step, phase)
        for index, (allocated, reserved) in mark.allocator.items():
            yield _said(step, phase, index, "allocated", allocated)
            yield _said(step, phase, index, "reserved", reserved)
    yield from _peaks(ledger.storages, step)


def _note_copies(ledger: Ledger) -> None:
    """Tell the casts to half that would not be there without autocast: of what is kept, or was cast before."""
    labels, cast = ledger.storages.labels, set[int]()
    for number, source in ledger.casts.items():
        if labels[number].component == "activations" and labels[number].dtype in _HALF_NAMES:
            if source in cast or labels[source].component == "activations":
                ledger.storages.note(number, COPY)
            cast.add(source)


def _peaks(storages: Storages, step: int) -> Iterator[MemoryRow]:
    for device, moment in storages.peaks().items():
        held = {label: held for label, held in storages.at(moment).items() if label.device == device}
        yield from _rows(held, step, "peak")


def _rows(moment: Moment, step: int, phase: str) -> Iterator[MemoryRow]:
    sizes: Counter[tuple[str, str, str | None, str | None, str]] = Counter()
    counts: Counter[tuple[str, str, str | None, str | None, str]] = Counter()
    for label, held in moment.items():
        module = label.module if label.component in _PLACED else None
        kind = label.kind if label.component in _NAMED else None
        key = (label.device, label.component, kind, module, label.dtype)
        sizes[key] += held.bytes
        counts[key] += held.storages
    for key, size in sizes.items():
        device, component, kind, place, dtype = key
        yield MemoryRow(
            step=step, phase=phase, device=device, component=component, kind=kind, module=place, dtype=dtype,
            bytes=size, storages=counts[key],
        )  # fmt: skip


def allocator_peak_rows(step: int, before: Mapping[int, int], at_peak: Mapping[str, int]) -> Iterator[MemoryRow]:
    """Yield its peak in the step that is over.

    Args:
        step: the step.
        before: the allocator's peaks as the step began: what is no higher since was not reached in this step. To reset
            them is the user's business.
        at_peak: what it had given out when most of the ledger's storages lived, by device; stands in for its peak.
    """
    for index, peak in allocator_peaks().items():
        known = peak if peak > before.get(index, 0) else at_peak.get(f"cuda:{index}")
        if known is not None:
            yield _said(step, "peak", index, "allocated", known)
            yield _said(step, "peak", index, "reserved", max(known, torch.cuda.memory_reserved(index)))


def _said(step: int, phase: str, index: int, component: str, size: int) -> MemoryRow:
    return MemoryRow(step=step, phase=phase, device=f"cuda:{index}", component=component, bytes=size, storages=0)


def timing_rows(timings: Timings, step: int) -> Iterator[Callable[[object], TimingRow]]:
    """Yield functions that return the rows of the step, once all of it is done on the device too."""
    for work, total in timings.totals.items():
        yield partial(_timing_row, step, work, total)


def _timing_row(step: int, work: Work, total: Total, _: object) -> TimingRow:
    return TimingRow(
        step=step, module=work.module, op=work.op, direction=work.direction, dtype_in=work.dtype_in,
        dtype_out=work.dtype_out, autocast=work.autocast, calls=total.calls, host_ms=1e3 * total.host_s,
        device_ms=total.device_ms(), numel=total.numel, misaligned=total.misaligned,
    )  # fmt: skip
