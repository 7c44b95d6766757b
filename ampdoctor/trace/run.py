"""`Run`: the validated, read-only view of a recorded run - the only thing that rules, reports and gate see."""

from __future__ import annotations

import math
import os
import socket
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ampdoctor.trace.folders import check_holds_a_run
from ampdoctor.trace.info import RunInfo, read_info
from ampdoctor.trace.rows import as_rows
from ampdoctor.trace.schema import (
    TABLES,
    AccumulatorRow,
    CallRow,
    GpuRow,
    MemoryRow,
    ModuleRow,
    OpRow,
    OptimizerRow,
    PaceRow,
    RoundingRow,
    ScalerRow,
    StepRow,
    TensorRow,
    TimingRow,
    TwinRow,
    TwinStepRow,
)
from ampdoctor.trace.tables import load_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

_Row = TypeVar("_Row")

_LONGEST = 200
"""Characters of a path in a representation."""


class Run:
    """One recorded training.

    Tables are read when first asked for and kept; rows come back as the frozen dataclasses of `trace.schema`, in the
    order in which they were recorded.

    Attributes:
        judged_calls: share of the recorded calls that the table `calls` holds: of a long run, not all.

    Args:
        info: the contents of run.json.
        load: returns a table by name with the notices of reading it.
        path: the run folder; None for a run built in memory.
        ranks: the ranks that recorded; the tables are those of the first.
        of_rank: returns the run as another of them recorded it; None where there is but one.
    """

    def __init__(
        self,
        info: RunInfo,
        load: Callable[[str], tuple[pa.Table, list[str]]],
        path: Path | None = None,
        ranks: tuple[int, ...] = (0,),
        of_rank: Callable[[int], Run] | None = None,
    ) -> None:
        self.info = info
        self.path = path
        self.ranks = ranks
        self.judged_calls = 1.0
        self._load = load
        self._of_rank = of_rank
        self._tables: dict[str, pa.Table] = {}
        self._notices: list[str] = []

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path)[:_LONGEST])
        steps = self.table("steps").num_rows
        return f"<ampdoctor run {where}: {self.info.status}, {steps} step{'' if steps == 1 else 's'}>"

    def _repr_html_(self) -> str:
        """Return the run as a notebook shows it: with its diagnosis."""
        shown: str = import_module("ampdoctor.report.notebook").card(self)
        return shown

    def table(self, name: str) -> pa.Table:
        """Return the Arrow table `name` of the rank that the run was opened for, empty where nothing was recorded."""
        if name not in self._tables:
            table, notices = self._load(name)
            self._tables[name] = table
            self._notices += notices
        return self._tables[name]

    def of_rank(self, rank: int) -> Run:
        """Return the run with the tables of `rank`, one of `ranks`; nothing of it is kept here."""
        return self if self._of_rank is None else self._of_rank(rank)

    @property
    def notices(self) -> tuple[str, ...]:
        """What was noticed while reading: tables that end in the middle of a batch."""
        for name in TABLES:
            self.table(name)
        return tuple(self._notices)

    @property
    def cut(self) -> bool:
        """The recording process is gone and never said that it was done: killed, or the machine went down."""
        info = self.info
        if info.status == "crashed":
            # A Ctrl-C ends a process by a signal too, but not before the recorder has put things in order.
            return info.exit_code is not None and info.exit_code < 0 and info.ended is None
        if info.status != "running" or info.pid <= 0:
            return False
        return info.host == socket.gethostname() and not _alive(info.pid)

    @property
    def unfinished(self) -> bool:
        """No end was recorded, and the recording process is not known to be gone: the run goes on."""
        return self.info.status == "running" and not self.cut

    @property
    def elsewhere(self) -> bool:
        """The run was recorded on another machine, of whose processes nothing is known."""
        return self.info.host not in {"", socket.gethostname()}

    def missing(self, needs: Iterable[str]) -> list[str]:
        """Return those of `needs` ("table" or "table.column") for which nothing was recorded."""
        absent = []
        for need in needs:
            name, _, column = need.partition(".")
            table = self.table(name)
            if table.num_rows == 0 or (column and table[column].null_count == table.num_rows):
                absent.append(need)
        return absent

    @cached_property
    def steps(self) -> list[StepRow]:
        """All steps, in order."""
        return self._rows("steps", StepRow)

    @cached_property
    def scaler(self) -> list[ScalerRow]:
        """All scaler events, in order."""
        return self._rows("scaler", ScalerRow)

    @cached_property
    def calls(self) -> list[CallRow]:
        """All recorded calls, in order."""
        return self._rows("calls", CallRow)

    @cached_property
    def accumulators(self) -> list[AccumulatorRow]:
        """All sums seen into totals that code keeps in half."""
        return self._rows("accumulators", AccumulatorRow)

    @cached_property
    def memory(self) -> list[MemoryRow]:
        """What lived at the named moments of the steps whose ledgers were kept."""
        return self._rows("memory", MemoryRow)

    @cached_property
    def paces(self) -> list[PaceRow]:
        """How long the modules of a step took in other precisions."""
        return self._rows("paces", PaceRow)

    @cached_property
    def timings(self) -> list[TimingRow]:
        """The operations of the steps whose ledgers were kept."""
        return self._rows("timings", TimingRow)

    @cached_property
    def gpu(self) -> list[GpuRow]:
        """All looks at the GPUs."""
        return self._rows("gpu", GpuRow)

    @cached_property
    def modules(self) -> list[ModuleRow]:
        """All modules seen."""
        return self._rows("modules", ModuleRow)

    @cached_property
    def optimizers(self) -> list[OptimizerRow]:
        """All parameter groups seen."""
        return self._rows("optimizers", OptimizerRow)

    @cached_property
    def ops(self) -> list[OpRow]:
        """All operations that local twins looked at, in order."""
        return self._rows("ops", OpRow)

    @cached_property
    def roundings(self) -> list[RoundingRow]:
        """All places seen where whole numbers, phases and scaled tensors were rounded, in order."""
        return self._rows("roundings", RoundingRow)

    @cached_property
    def twins(self) -> list[TwinRow]:
        """All that twin steps measured, in order."""
        return self._rows("twins", TwinRow)

    @cached_property
    def twin_steps(self) -> list[TwinStepRow]:
        """All second opinions, given or declined, in order."""
        return self._rows("twin_steps", TwinStepRow)

    def tensors(self, *roles: str, dtypes: Iterable[str] | None = None) -> list[TensorRow]:
        """Return the rows of `roles` (all without any) held in one of `dtypes` (all where None), in order."""
        held = None if dtypes is None else set(dtypes)
        wanted = set(roles)
        return [r for r in self._tensors if (not wanted or r.role in wanted) and (held is None or r.dtype in held)]

    @cached_property
    def _tensors(self) -> list[TensorRow]:
        """All tensors: what is read of a long run is few enough to keep, and many rules ask for it."""
        return self._rows("tensors", TensorRow)

    @cached_property
    def marked_steps(self) -> list[list[int]]:
        """The steps that something happened on, in order, by what happened."""
        marked: dict[str, list[int]] = {}
        for step in self.steps:
            if step.reason is not None:
                marked.setdefault(step.reason, []).append(step.step)
            if step.loss is not None and not math.isfinite(step.loss):
                marked.setdefault("loss", []).append(step.step)
        for row in self.twin_steps:
            marked.setdefault(f"twins: {row.reason}", []).append(row.step)
        return list(marked.values())

    def _rows(self, name: str, row: type[_Row]) -> list[_Row]:
        return as_rows(self.table(name), row)


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open the run folder at `path`: of a run with several ranks, the first one's tables.

    What one rank did in a step must not be counted as if all had done it in turn; `Run.of_rank` has what the others
    recorded. Tensors that were spread over the ranks are put together from the parts.

    Raises:
        RunNotFoundError: no such folder, or not a run.
        SchemaVersionError: written by a version that this one can't read.
        TraceCorruptError: run.json or a table is not what it should be. A table that merely ends early is no error.
    """
    folder = Path(path)
    check_holds_a_run(folder)
    info = read_info(folder)
    ranks = ranks_of(folder)
    run = _of_rank(folder, info, ranks, ranks[0] if ranks else 0)
    for name in TABLES:
        run.table(name)
    return run


def _of_rank(folder: Path, info: RunInfo, ranks: tuple[int, ...], rank: int) -> Run:
    def load(name: str) -> tuple[pa.Table, list[str]]:
        return load_table(folder, name, rank, run)

    run = Run(info, load, folder, ranks, lambda other: _of_rank(folder, info, ranks, other))
    return run


def ranks_of(folder: Path) -> tuple[int, ...]:
    """Return the ranks that recorded tables into `folder`, in order."""
    found = {path.stem.rpartition("-")[2] for name in TABLES for path in folder.glob(f"{name}-*.arrows")}
    return tuple(sorted(int(rank) for rank in found if rank.isdecimal()))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
