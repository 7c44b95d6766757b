"""The gradients of one step as stages: what each held before FP16 cut it, and which stage it was made from.

The trace has the gradients in the order of the backward pass and not the graph. A stage is taken to be made from the
one before it, with one exception: a gradient that is larger than the one before it, by more than a layer tends to add,
and as large as an earlier one of the same number of elements, is that earlier one with a branch's share added to it
(a residual connection), and does not die with the branch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log2
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.divided_by_hand import divided_by_hand
from ampdoctor.analysis.backward.unflushed import Unflushed, as_it_is, unflushed
from ampdoctor.analysis.twins.seen_in_fp32 import rows_in_fp32, seen_in_fp32
from ampdoctor.formats import FP16, HALF_DTYPES, NumberFormat, format_of_dtype
from ampdoctor.histogram import ExponentHistogram, merge
from ampdoctor.trace.histograms import histogram_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampdoctor.analysis.twins.seen_in_fp32 import Site
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow, TwinRow

GROWTH = 2.0
"""A gradient that grew by more than this from one stage to the next may have come round the branch between."""

LOOKED_UP = ("Embedding", "EmbeddingBag")
"""Modules whose weight is looked up by rows, which autocast leaves in FP32."""

FAR = 10
"""Binades between a gradient and the edge: no layer shrinks all of one by that much. One that is zero below it in every
element was never there (a zero-initialised layer or gain)."""

KEPT_WIDE = (*LOOKED_UP, "Norm", "Norm1d", "Norm2d", "Norm3d")
"""Ends of the names of modules whose weights autocast does not cast: their gradients are summed up in FP32."""

COMPUTED_WIDE = (*LOOKED_UP, "LayerNorm", "GroupNorm", "Loss")
"""Ends of the names of modules whose outputs are FP32 under autocast, and so the gradients of these."""


@dataclass(eq=False)
class Stage:
    """One gradient of an output, or one about to be cast to half, all its calls and micro-batches together.

    Attributes:
        row: its first row.
        held: the histogram as recorded.
        values: what it was before the run's format flushed.
        narrow: it is held in half, or about to be; of a run in FP32, it would be under autocast.
        above: the stage it was made from; None for the first.
        empty: it is zero by the model's own doing.
    """

    row: TensorRow
    held: ExponentHistogram
    values: Unflushed
    narrow: bool
    above: Stage | None = None
    empty: bool = False

    @property
    def features(self) -> int:
        """Features of one position: the last dimension, or the channels of an image."""
        shape = self.row.shape
        return shape[1] if len(shape) == 4 else shape[-1] if shape else 1


@dataclass(frozen=True, eq=False)
class WeightGradient:
    """One weight gradient, all micro-batches together.

    Attributes:
        row: its first row.
        held: the histogram as recorded.
        values: what it was before the run's format flushed.
        narrow: it is made in half (an autocast weight's gradient is, whatever dtype it is kept in); of a run in FP32,
            it would be under autocast.
        stages: the gradients it is made from.
        sparse: only the rows that were looked up have a gradient (an embedding).
        seen: the values are those of the step's FP32 twin, of which nothing is lost on the way either.
    """

    row: TensorRow
    held: ExponentHistogram
    values: Unflushed
    narrow: bool
    stages: tuple[Stage, ...]
    sparse: bool
    seen: bool = False


@dataclass(frozen=True)
class BackwardPass:
    """The gradients of one step.

    Attributes:
        stages: in the order of the backward pass.
        weights: in the order of recording.
        half: the run's half format; None for a run in FP32.
        divided: the weight gradients were recorded, by the run and by its twins, after code had divided them by the
            scale. Here they have it in them again.
    """

    stages: tuple[Stage, ...]
    weights: tuple[WeightGradient, ...]
    half: NumberFormat | None = field(default=FP16)
    divided: bool = False


def backward_pass(run: Run, step: int, scale: float) -> BackwardPass:
    """Return the gradients of `step`, which was examined, in a run with the loss scale `scale`."""
    rows = [r for r in run.tensors("grad_output", "weight_grad") if r.step == step]
    half = half_format(rows)
    groups: dict[tuple[str, str, str], list[TensorRow]] = {}
    for row in sorted(rows, key=lambda r: (r.micro_batch, r.seq)):
        groups.setdefault((row.module, row.role, row.slot), []).append(row)
    outputs = [g for (_, role, _), g in groups.items() if role == "grad_output"]
    twins = rows_in_fp32(run, step)
    kinds = {m.module: m.type for m in run.modules}
    # Of a run in FP32 it is asked what autocast would do.
    wide = {m for m, kind in kinds.items() if half is None and kind.endswith(COMPUTED_WIDE)}
    stages = tuple(_stage(group, half, twins, scale) for group in outputs)
    for place, stage in enumerate(stages):
        stage.narrow = stage.narrow and stage.row.module not in wide
        stage.above = _above(stage, stages[:place])
        stage.empty = stage.values.gone and (half is None or _far(stage.above, half))
    divided = divided_by_hand(run, step, scale)
    missing = round(log2(scale)) if divided else 0
    weights = tuple(
        _weight(group, stages, half, kinds.get(module, ""), (missing, twins, scale))
        for (module, role, _), group in groups.items()
        if role == "weight_grad"
    )
    return BackwardPass(stages, weights, half, divided)


def half_format(rows: Sequence[TensorRow]) -> NumberFormat | None:
    """Return the half format that the gradients `rows` went through; FP16 where there are both; None for none."""
    dtypes = {r.dtype for r in rows} | {r.cast_to for r in rows}
    dtype = next((d for d in sorted(HALF_DTYPES, reverse=True) if d in dtypes), None)
    return format_of_dtype(dtype) if dtype else None


def _stage(
    group: Sequence[TensorRow], half: NumberFormat | None, twins: Mapping[Site, Sequence[TwinRow]], scale: float
) -> Stage:
    row, held = group[0], merge(histogram_of(r) for r in group)
    own = row.dtype in HALF_DTYPES and half is not None
    narrow = own or half is None or row.slot.startswith("cast")
    beside = twins.get((row.role, row.module, row.slot))
    values = seen_in_fp32(beside, held, scale) if beside else None
    if values is None:
        values = unflushed(held, half) if own and half is not None else as_it_is(held)
    return Stage(row, held, values, narrow)


def _above(stage: Stage, before: Sequence[Stage]) -> Stage | None:
    if not before or before[-1].row.micro_batch != stage.row.micro_batch:
        return None
    size = stage.held.rms
    if size and not before[-1].held.rms:  # Nothing is made from nothing.
        return next((s for s in reversed(before) if s.held.rms), before[-1])
    if size > GROWTH * before[-1].held.rms:
        for earlier in reversed(before[:-1]):
            alike = size / GROWTH <= earlier.held.rms <= size * GROWTH
            if alike and earlier.held.numel == stage.held.numel:
                return earlier
    return before[-1]


def _far(above: Stage | None, half: NumberFormat) -> bool:
    """Whether a stage is so far above the edge of `half` that the next one cannot have been flushed whole."""
    if above is None:
        return False
    return above.empty or above.held.rms >= 2.0 ** (half.flush_exponent + FAR)


def _weight(
    group: Sequence[TensorRow],
    stages: Sequence[Stage],
    half: NumberFormat | None,
    kind: str,
    known: tuple[int, Mapping[Site, Sequence[TwinRow]], float],
) -> WeightGradient:
    """Return the gradient of one weight; it was divided by 2**`missing` before it was recorded, its twins too."""
    missing, twins, scale = known
    row, recorded = group[0], merge(histogram_of(r) for r in group)
    held = recorded.shifted(missing) if missing else recorded
    own = tuple(s for s in stages if s.row.module == row.module) or tuple(stages[:1])
    narrow = not kind.endswith(KEPT_WIDE) if half is None else _made_in(half, row, held, kind)
    beside = twins.get((row.role, row.module, row.slot))
    seen = seen_in_fp32(beside, held, scale * 2.0**missing) if beside else None
    if seen is not None:
        values = seen
    elif not narrow or half is None:
        values = as_it_is(held)
    elif missing > 0 and row.dtype in HALF_DTYPES:  # The division has flushed more.
        values = unflushed(recorded, half).shifted(missing)
    else:
        values = unflushed(held, half)
    return WeightGradient(row, held, values, narrow, own, kind in LOOKED_UP, seen is not None)


def _made_in(half: NumberFormat, row: TensorRow, held: ExponentHistogram, kind: str) -> bool:
    """Whether a weight gradient came out of a product in half; one with finer steps than half has did not."""
    if row.dtype in HALF_DTYPES:
        return True
    finer = held.count_below(half.min_subnormal_exponent) > 0
    return row.dtype == "float32" and not finer and not kind.endswith(KEPT_WIDE)
