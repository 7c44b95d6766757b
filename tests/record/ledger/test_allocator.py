"""What torch's CUDA allocator says, with a stand-in for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from ampdoctor.record.ledger.allocator import allocator_peaks
from ampdoctor.record.ledger.holdings import Holdings
from ampdoctor.record.ledger.ledger import Ledger
from ampdoctor.record.ledger.rows import allocator_peak_rows, memory_rows
from ampdoctor.record.ledger.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.schema import MemoryRow

GIB = 2**30


@pytest.fixture(autouse=True)
def _two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first device trains, the second is not used."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: 0 if index else 2 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 0 if index else 4 * GIB)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: 0 if index else 3 * GIB)


def _said(rows: Iterable[MemoryRow]) -> list[tuple[str, str, str, int]]:
    return [(r.device, r.phase, r.component, r.bytes) for r in rows]


def test_of_several_micro_batches_it_is_asked_at_the_one_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ampdoctor.record.ledger.ledger.cuda_in_use", lambda: True)
    ledger = Ledger(Holdings([], []), Timings())
    kept: list[torch.Tensor] = []
    for allocated, size in ((2 * GIB, 100), (3 * GIB, 300), (GIB, 200)):
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index, n=allocated: n)
        kept[:] = [torch.empty(size)]
        ledger.storages.meet(kept[0], "activations", None, None)
        ledger.mark("forward")
    assert [(r.component, r.bytes) for r in memory_rows(ledger, 4) if r.phase == "forward"] == [
        ("activations", 4 * 300),
        ("allocated", 3 * GIB),
        ("reserved", 4 * GIB),
    ]


def test_the_peak_of_the_step() -> None:
    assert _said(allocator_peak_rows(4, {0: 2 * GIB}, {"cuda:0": GIB})) == [
        ("cuda:0", "peak", "allocated", 3 * GIB),
        ("cuda:0", "peak", "reserved", 4 * GIB),
    ]


def test_an_earlier_peak_is_not_the_step_s() -> None:
    # What it said when most of the ledger's storages lived stands in for it.
    assert _said(allocator_peak_rows(4, allocator_peaks(), {"cuda:0": GIB}))[0] == ("cuda:0", "peak", "allocated", GIB)
    assert _said(allocator_peak_rows(4, allocator_peaks(), {})) == []


def test_it_is_asked_whenever_more_lives_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def allocated(device: str) -> int:
        asked.append(device)
        return 7

    monkeypatch.setattr(torch.cuda, "memory_allocated", allocated)
    ledger = Ledger(Holdings([], []), Timings())
    for held in (100, 50, 100, 200):
        monkeypatch.setattr(ledger.storages, "held", {"cuda:0": held}.copy)
        ledger._ask_allocator()
    assert asked == ["cuda:0"] * 2
    assert ledger.allocated == {"cuda:0": 7}
