"""Calls of operations, added up by where and on what they ran, and their rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from ampdoctor.record.callsite import shortened
from ampdoctor.record.tensors import dtype_name
from ampdoctor.record.twin.local.measures import MEASURES, Measure
from ampdoctor.trace.schema import OpRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from ampdoctor.record.callsite import CallSite
    from ampdoctor.record.log import Deferred, Scalar, StepLog, Values
    from ampdoctor.record.twin.local.measures import Measured
    from ampdoctor.record.twin.place import Place

MOST_CALLS = 50_000
"""Calls whose numbers are kept on a device until the step ends; some 100 bytes each."""


MOST_INPUTS = 16
"""Rows that are named as those whose results went into one."""


class Asked(NamedTuple):
    """Which of the columns that not every operation has are known of a call."""

    result: bool
    """It was compared with FP32."""
    absorbed: bool = False
    integers_lost: bool = False
    cancelled: bool = False


class Group(NamedTuple):
    """What calls agree in that are added up."""

    micro_batch: int
    module: str
    op: str
    backward: bool
    dtype_in: str
    dtype_out: str
    source: CallSite
    asked: Asked


@dataclass
class Calls:
    """The calls of one group so far; `late` are those whose numbers are still on the device, with their order."""

    first: int
    loss_scale: Scalar
    calls: int = 0
    numel: int = 0
    totals: list[float] = field(default_factory=lambda: [0.0] * MEASURES)
    first_lost: int | None = None
    first_born: int | None = None
    late: list[tuple[int, Deferred]] = field(default_factory=list)
    inputs: set[int] = field(default_factory=set)
    constant: float | None = None

    def add(self, order: int, vector: Sequence[float]) -> None:
        """Add the numbers of one call; calls come in order."""
        absmax = max(self.totals[Measure.ABSMAX], vector[Measure.ABSMAX])
        self.totals = [a + b for a, b in zip(self.totals, vector, strict=True)]
        self.totals[Measure.ABSMAX] = absmax
        if self.first_lost is None and (
            vector[Measure.FLUSHED] or vector[Measure.ABSORBED] or vector[Measure.INTEGERS_LOST]
        ):
            self.first_lost = order
        if self.first_born is None and vector[Measure.BORN]:
            self.first_born = order


class LocalRows:
    """The rows of one step's operations.

    Args:
        log: the step.
        source: live or replay.
    """

    def __init__(self, log: StepLog, source: str) -> None:
        self._log = log
        self._source = source
        self._groups: dict[Group, Calls] = {}
        self._by_seq: dict[int, Calls] = {}
        self._late = 0
        self._lock = Lock()  # the backward pass of each device has a thread

    def add(
        self, order: int, place: Place, op: str, dtypes: tuple[str, str], numel: int, vector: Measured, asked: Asked
    ) -> int | None:
        """Add one call and return the seq of its row; None where there were too many."""
        log = self._log
        group = Group(log.micro_batch, place.module or "", op, place.backward, *dtypes, place.source, asked)
        with self._lock:
            if not isinstance(vector, list):
                if self._late >= MOST_CALLS:
                    return None
                self._late += 1
            calls = self._groups.get(group)
            if calls is None:
                scale = log.pass_scale if place.backward else None
                calls = self._groups[group] = Calls(order, scale)
                self._by_seq[order] = calls
            calls.calls += 1
            calls.numel += numel
            if isinstance(vector, list):
                calls.add(order, vector)
            else:
                calls.late.append((order, log.keep(vector)))
        return calls.first

    def describe(self, seq: int, inputs: tuple[int, ...], constant: float | None) -> None:
        """Note of the row `seq` where its values come from, and the number beside them that is lost."""
        calls = self._by_seq[seq]
        if len(calls.inputs) < MOST_INPUTS:
            calls.inputs.update(inputs)
        if constant is not None:
            known = calls.constant
            calls.constant = constant if known is None else min(known, constant, key=abs)

    def queue(self) -> None:
        """Queue all rows, in the order of their first calls."""
        for group, calls in self._groups.items():
            self._log.row("ops", partial(self._row, group, calls))
        self._groups, self._by_seq = {}, {}

    def _row(self, group: Group, calls: Calls, values: Values) -> OpRow:
        for order, place in calls.late:
            calls.add(order, values.vector(place).tolist())
        calls.late = []
        total, asked = calls.totals, group.asked

        def count(measure: Measure, known: bool) -> int | None:
            return int(total[measure]) if known else None

        return OpRow(
            step=self._log.step,
            micro_batch=group.micro_batch,
            seq=calls.first,
            first_lost=calls.first_lost,
            first_born=calls.first_born,
            module=group.module,
            op=group.op,
            direction="backward" if group.backward else "forward",
            dtype_in=group.dtype_in,
            dtype_out=group.dtype_out,
            **shortened(group.source)._asdict(),
            source=self._source,
            calls=calls.calls,
            numel=calls.numel,
            nonzero=int(total[Measure.NONZERO]),
            flushed=int(total[Measure.FLUSHED]),
            energy_lost=_share(total[Measure.FLUSHED_SQUARES], total[Measure.SQUARES]),
            overflowed=int(total[Measure.OVERFLOWED]),
            born=int(total[Measure.BORN]),
            born_fp32=int(total[Measure.BORN_FP32]),
            absorbed=count(Measure.ABSORBED, asked.absorbed),
            integers_lost=count(Measure.INTEGERS_LOST, asked.integers_lost),
            cancelled=count(Measure.CANCELLED, asked.cancelled),
            relative_error=_relative_error(total) if asked.result else None,
            absmax=total[Measure.ABSMAX],
            loss_scale=values.number(calls.loss_scale),
            inputs_from=sorted(calls.inputs),
            constant=calls.constant,
        )


def joined(dtypes: Iterable[torch.dtype]) -> str:
    """Return the names of dtypes, each once, joined by commas."""
    return _joined(tuple(dict.fromkeys(dtypes)))


@cache
def _joined(dtypes: tuple[torch.dtype, ...]) -> str:
    return ",".join(dtype_name(d) for d in dtypes)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _relative_error(total: Sequence[float]) -> float | None:
    share = _share(total[Measure.ERROR_SQUARES], total[Measure.COMPARED_SQUARES])
    return None if share is None else float(share**0.5)
