"""Local twins: each operation once more in FP32 on the run's own inputs. Nothing is carried on, so nothing is kept.

They tell where an error is made: what a carried twin shows of a tensor has come together on the way to it. Looked at
are operations on half tensors, casts to narrow formats, and sums of any float tensors (`local/sums.py`). Left out is
what moves, selects or compares values (`local/natures.py`), and casts that can't lose anything.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.twin.local.casts import casts_of, with_integers_lost
from ampdoctor.record.twin.local.constants import lost_constant
from ampdoctor.record.twin.local.execution import AFTER_THE_RUN, FAILURES, NotExecutedError, check, execute, results
from ampdoctor.record.twin.local.inputs import Inputs, all_finite
from ampdoctor.record.twin.local.lineage import Lineage
from ampdoctor.record.twin.local.measures import Measure, add_up, compare
from ampdoctor.record.twin.local.natures import (
    LANDMARKS,
    SINGULAR,
    WIDER,
    Nature,
    base_of,
    nature_of,
    plain,
    touches_half,
)
from ampdoctor.record.twin.local.rows import MOST_CALLS, Asked, LocalRows, joined
from ampdoctor.record.twin.local.sums import measured, sums_of
from ampdoctor.record.twin.operations import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampdoctor.record.log import StepLog
    from ampdoctor.record.twin.local.casts import Cast
    from ampdoctor.record.twin.local.measures import Measured
    from ampdoctor.record.twin.local.sums import Sum
    from ampdoctor.record.twin.operations import Operation

_LONGEST_REASON = 120

_MAKES_INTEGERS = frozenset({"arange"})


class LocalTwins:
    """Each operation of a step beside itself in FP32; a Follower.

    Args:
        log: the step; its rows of `ops` are queued there by `finish`.
        source: live or replay.

    Attributes:
        not_twinned: operations that were not executed in FP32, with the reason and how often.
        operations: operations seen.
    """

    def __init__(self, log: StepLog, *, source: str = "live") -> None:
        self.not_twinned: Counter[str] = Counter()
        self._rows = LocalRows(log, source)
        self._lineage = Lineage()
        self._inputs: tuple[int, ...] = ()  # of the operation at hand, and the row that it has
        self._row: int | None = None
        self.operations = 0

    def before(self, operation: Operation) -> Callable[[Any], None]:
        """Execute the operation that is about to run in FP32; returns what to call with the run's result."""
        self.operations += 1
        inputs = self._lineage.inputs(operation)
        self._inputs, self._row = inputs, None
        then = self._tried(operation, self._begun, operation)
        row = self._row

        def follow(result: Any) -> None:
            self._inputs, self._row = inputs, row
            if then is not None:
                self._tried(operation, then, result)
            self._lineage.made(operation, result, self._origins(inputs))

        return follow

    def _origins(self, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """Return where the result of the operation at hand comes from: its row, or what went in where it has none."""
        return inputs if self._row is None else (self._row,)

    def _tried(self, operation: Operation, look: Callable[[Any], Any], subject: Any) -> Any:
        """Look at `subject`; an operation that can't be looked at is named, and all others still are."""
        try:
            return look(subject)
        except (NotExecutedError, *FAILURES) as reason:
            told = str(reason).partition("\n")[0][:_LONGEST_REASON]
            self.not_twinned[f"{operation.traits.name}: {told}"] += 1
            return None

    def _begun(self, operation: Operation) -> Callable[[Any], None] | None:
        nature = nature_of(operation.function)
        constant = lost_constant(operation)
        if nature is Nature.SKIPPED and constant is None:
            return None
        if nature is Nature.CAST:
            casts = casts_of(operation)
            return (lambda result: self._cast(operation, casts, result)) if casts else None
        half = touches_half(operation.args, operation.kwargs)
        if half and nature is Nature.OPAQUE:
            raise NotExecutedError("executed by the run only")
        sums = sums_of(operation, self._lineage.known_as, alone=not half) if nature is Nature.SUM else []
        if half:
            return self._beside(operation, sums)
        if sums:
            self._add_alone(operation, sums)
        elif (base := base_of(operation.traits.name)) in SINGULAR | LANDMARKS:
            inputs = Inputs.of(operation)
            return lambda result: self._fp32(operation, inputs, result, always=base in LANDMARKS)
        return None

    def finish(self) -> None:
        """Queue the rows."""
        self._rows.queue()

    def _cast(self, operation: Operation, casts: Sequence[Cast], result: Any) -> None:
        inputs = [c.source for c in casts]
        targets = [result if c.target is None else c.target for c in casts]
        vectors = []
        for source, target in zip(inputs, targets, strict=True):
            if (vector := compare(target, source)) is not None:
                vectors.append(with_integers_lost(vector, target, source))
        asked = Asked(result=True, integers_lost=True)
        self._add(operation, inputs, targets, Inputs(inputs), add_up(vectors), asked)

    def _add_alone(self, operation: Operation, sums: Sequence[Sum]) -> None:
        """A sum without halves is what it is in FP32, and is known before it has run."""
        inputs = [t for s in sums for t in s.operands]
        totals = [s.operands[0] for s in sums]
        asked = Asked(result=False, absorbed=True, cancelled=any(s.cancels_below for s in sums))
        self._add(operation, inputs, totals, Inputs(inputs), measured(sums), asked)

    def _fp32(self, operation: Operation, inputs: Inputs, result: Any, *, always: bool) -> None:
        """An operation in FP32 has a row where it makes NaN or infinities of finite values, or `always`."""
        ours = [t for t in tensors_of(result) if t.dtype is torch.float32 and plain(t)]
        if not always and all(t.device.type == "cpu" and all_finite(t) for t in ours):
            return
        vector = add_up([v for t in ours if (v := compare(t, t)) is not None])
        if not always and isinstance(vector, list) and not inputs.kept(vector)[Measure.BORN]:
            return
        self._add(operation, operation.tensors, ours, inputs, vector, Asked(result=False))

    def _beside(self, operation: Operation, sums: Sequence[Sum]) -> Callable[[Any], None]:
        check(operation)
        inputs = Inputs.of(operation)
        asked = Asked(
            result=True,
            absorbed=bool(sums),
            cancelled=any(s.cancels_below for s in sums),
            integers_lost=base_of(operation.traits.name) in _MAKES_INTEGERS,
        )
        references = None if operation.function in AFTER_THE_RUN else execute(operation)
        summed = measured(sums, references or ())

        def compared(result: Any) -> None:
            beside = execute(operation, result) if references is None else references
            ours = results(operation, operation.args, operation.kwargs, result)
            pairs = _comparable(ours, beside)
            vectors = [compare(r, f) for r, f in pairs] + [summed]
            vector = add_up([v for v in vectors if v is not None])
            if vector is not None and asked.integers_lost:
                vector = with_integers_lost(vector, *pairs[0])
            written = [r for r, _ in pairs]
            self._add(operation, operation.tensors, written, inputs, vector, asked)

        return compared

    def _add(
        self,
        operation: Operation,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        finite: Inputs,
        vector: Measured | None,
        asked: Asked,
    ) -> None:
        if vector is None:
            return
        dtypes = joined([t.dtype for t in inputs]), joined([t.dtype for t in outputs])
        numel = sum([t.numel() for t in outputs])
        place, name = operation.place, operation.traits.name
        vector = finite.kept(vector)
        self._row = self._rows.add(self.operations, place, name, dtypes, numel, vector, asked)
        if self._row is None:
            raise NotExecutedError(f"over {MOST_CALLS} calls")
        self._rows.describe(self._row, self._inputs, lost_constant(operation))


def _comparable(
    ours: Sequence[torch.Tensor], beside: Sequence[torch.Tensor]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the results that mean the same in both: halves where there are any, else all floats."""
    if len(ours) != len(beside):
        return []
    if len(ours) == 1:
        (run,), (reference,) = ours, beside
        alike = run.is_floating_point() and run.shape == reference.shape and plain(run)
        return [(run, reference)] if alike else []
    pairs = [
        (r, f)
        for r, f in zip(ours, beside, strict=True)
        if r.is_floating_point() and r.shape == f.shape and plain(r) and r.device == ours[0].device
    ]
    halves = [(r, f) for r, f in pairs if r.dtype in WIDER]
    return halves or pairs
