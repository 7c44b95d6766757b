"""Where a step's memory and time went, of a run as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ampdoctor.analysis.memory.ledgers import FORWARD, PEAK, Ledger, ledgers
from ampdoctor.analysis.speed import Speed, speeds
from ampdoctor.trace.growing import GrowingTable
from ampdoctor.trace.run import Run
from ampdoctor.trace.schema import TABLES
from ampdoctor.trace.writer import table_path

if TYPE_CHECKING:
    from ampdoctor_dashboard.data.kept import Kept
    from ampdoctor_dashboard.data.opened import OpenedRun

READ = ("steps", "memory", "timings", "paces", "modules", "gpu")
"""The tables that are read in full; of `tensors` weights and activations of the first steps will do."""

FIRST_ROWS = 200_000
"""Rows of `tensors` among which the weights and activations are looked for."""


def costs(opened: OpenedRun) -> Run:
    """Return the run with what is needed to say where memory and time went, and nothing of its many tensors."""
    opened.refresh()
    runs: Kept[Run] = opened.kept("costs", 1)
    return runs.get(None, lambda: _costs(opened))


def _costs(opened: OpenedRun) -> Run:
    """Return the run as it is now: a `Run` never changes, so it is handed tables that no longer grow."""
    tables = {name: opened.table(name) for name in READ}

    def load(name: str) -> tuple[pa.Table, list[str]]:
        if name == "tensors":
            return _first_tensors(opened), []
        return tables.get(name, TABLES[name].arrow.empty_table()), []

    return Run(opened.info, load, opened.folder, opened.ranks)


def _first_tensors(opened: OpenedRun) -> pa.Table:
    table = GrowingTable(table_path(opened.folder, "tensors", opened.rank), TABLES["tensors"]).read_new(FIRST_ROWS)
    return table.filter(pc.is_in(table["role"], pa.array(["weight", "activation"])))


@dataclass(frozen=True)
class Chosen:
    """The step and the moment whose memory is shown.

    Attributes:
        ledger: what lived in that step.
        phase: the moment.
        asked: the step that was asked for, where its memory was not recorded; None where it was, or none was.
    """

    ledger: Ledger
    phase: str
    asked: int | None = None


def chosen_ledger(run: Run, step: int | None, phase: str) -> Chosen | None:
    """Return what to show for a step and a moment of the address: the nearest that there is; None without any."""
    found = ledgers(run)
    if not found:
        return None
    near = max(found) if step is None else min(found, key=lambda s: abs(s - step))
    ledger = found[near]
    moments = ledger.phases
    if not moments:
        return None
    usual = PEAK if PEAK in moments else moments[-1]
    return Chosen(ledger, phase if phase in moments else usual, None if step is None or step == near else step)


def chosen_speed(run: Run, step: int | None) -> Speed | None:
    """Return the operations of the step that was timed and is nearest to the one asked for; None without any."""
    found = speeds(run)
    if not found:
        return None
    return found[-1] if step is None else min(found, key=lambda speed: abs(speed.step - step))


def kept_by_module(ledger: Ledger) -> dict[str | None, dict[str, int]]:
    """Return the bytes that each module keeps for the backward pass, by dtype; most first, None outside of any."""
    sizes: dict[str | None, dict[str, int]] = {}
    for row in ledger.at(FORWARD, "activations"):
        held = sizes.setdefault(row.module, {})
        held[row.dtype or ""] = held.get(row.dtype or "", 0) + row.bytes
    return dict(sorted(sizes.items(), key=lambda item: -sum(item[1].values())))
