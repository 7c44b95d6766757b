"""The recorded memory of one step, by moment and component."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.memory.policy import base, is_of_loss
from ampdoctor.formats import HALF_DTYPES, format_of_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import MemoryRow

FORWARD, PEAK = "forward", "peak"

PHASES = (FORWARD, "backward", "step", PEAK)
"""Moments of a step, in order; the peak lies between two of them."""

_ALLOCATOR = ("allocated", "reserved")


@dataclass(frozen=True)
class Ledger:
    """What lived on one device in one step.

    Attributes:
        step: the step.
        device: the device that held most.
        rows: what was recorded, what the allocator says included.
        autocast: dtype that autocast was on for; None where it was off.
    """

    step: int
    device: str
    rows: tuple[MemoryRow, ...]
    autocast: str | None

    @property
    def phases(self) -> list[str]:
        """The moments that were recorded, in order."""
        held = {row.phase for row in self.rows}
        return [phase for phase in PHASES if phase in held]

    def at(self, phase: str, *components: str) -> list[MemoryRow]:
        """Return what lived at a moment, of all components without any."""
        found = self._by_phase.get(phase, {})
        names = components or [name for name in found if name not in _ALLOCATOR]
        return [row for name in names for row in found.get(name, ())]

    @cached_property
    def _by_phase(self) -> dict[str, dict[str, list[MemoryRow]]]:
        found: dict[str, dict[str, list[MemoryRow]]] = {}
        for row in self.rows:
            found.setdefault(row.phase, {}).setdefault(row.component, []).append(row)
        return found

    @cached_property
    def phases_with_losses(self) -> frozenset[str]:
        """The moments at which parts of a loss were kept for the backward pass."""
        return frozenset(
            phase for phase in self.phases if any(is_of_loss(r.kind) for r in self.at(phase, "activations"))
        )

    @cached_property
    def has_layer_norms(self) -> bool:
        """The result of a layer norm was kept."""
        return any("layer_norm" in base(row.kind) for row in self.rows)

    def total(self, phase: str) -> int:
        """Return the bytes of all components."""
        return total(self.at(phase))

    def components(self, phase: str) -> dict[str, int]:
        """Return the bytes of each component, largest first."""
        return {str(component): size for component, size in by(self.at(phase), "component")}

    def allocated(self, phase: str) -> int | None:
        """Return what torch's CUDA allocator had given out; None where it was not asked."""
        return self._said(phase, "allocated")

    def reserved(self, phase: str) -> int | None:
        """Return what it had taken from the device."""
        return self._said(phase, "reserved")

    def unattributed(self, phase: str) -> int | None:
        """Return what it had given out beyond all components: below 0 where blocks had been given back meanwhile."""
        allocated = self.allocated(phase)
        return None if allocated is None else allocated - self.total(phase)

    def overhead(self, phase: str) -> int | None:
        """Return what it held beyond what it had given out: its cache, and what is fragmented."""
        allocated, reserved = self.allocated(phase), self.reserved(phase)
        return None if allocated is None or reserved is None else reserved - allocated

    def _said(self, phase: str, what: str) -> int | None:
        return next((r.bytes for r in self.rows if r.phase == phase and r.component == what), None)


@once_per_run
def ledgers(run: Run) -> dict[int, Ledger]:
    """Return the ledger of each step that has one."""
    steps: dict[int, list[MemoryRow]] = {}
    for row in run.memory:
        steps.setdefault(row.step, []).append(row)
    autocast = {row.step: row.autocast for row in run.timings if row.autocast in HALF_DTYPES}
    return {step: _ledger(step, rows, autocast.get(step)) for step, rows in sorted(steps.items())}


def _ledger(step: int, rows: list[MemoryRow], autocast: str | None) -> Ledger:
    held = [r for r in rows if r.component not in _ALLOCATOR] or rows
    # Batches are made on the host; what trains is where the weights are.
    weights = [r for r in held if r.component == "weights"]
    device = by(weights or held, "device")[0][0] or "cpu"
    own = tuple(r for r in rows if r.device == device)
    cached = next((r.dtype for r in own if r.component == "autocast_cache"), None)
    return Ledger(step, device, own, autocast or cached)


def total(rows: Iterable[MemoryRow]) -> int:
    """Return the bytes of `rows`."""
    return sum(row.bytes for row in rows)


def by(rows: Iterable[MemoryRow], column: str) -> list[tuple[str | None, int]]:
    """Return the bytes of `rows` by what stands in a column, largest first."""
    sizes: Counter[str | None] = Counter()
    for row in rows:
        sizes[getattr(row, column)] += row.bytes
    return sorted(sizes.items(), key=lambda item: -item[1])


def is_float(row: MemoryRow) -> bool:
    """Whether it holds floating-point numbers of a format that training computes in."""
    return row.dtype is not None and format_of_dtype(row.dtype) is not None
