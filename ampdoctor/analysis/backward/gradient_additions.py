"""Gradients that are added up in half: by autograd over micro-batches, by hand, or row by row within one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.storage.accumulators import accumulators
from ampdoctor.analysis.twins.opinions import op_rows
from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.analysis.storage.accumulators import Accumulator
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow, TensorRow

_ADDS_ROWS = ("embedding_dense_backward", "index_add", "index_put", "scatter_add", "scatter_reduce")
"""Operations that add many rows up to one."""


def gradient_sums(run: Run) -> Sequence[TensorRow]:
    """Return the half gradients that several backward passes were added up to, beside the same sum in FP32."""
    return [
        row
        for row in run.tensors("weight_grad", dtypes=HALF_DTYPES)
        if row.additions and row.sum_norm_ratio is not None and row.absmax > 0.0 and not row.nonfinite
    ]  # fmt: skip


def energy_wrong(row: TensorRow) -> float:
    """Return the energy of the sum's difference to that in FP32, as a share of that one's."""
    ratio, cosine = row.sum_norm_ratio or 0.0, row.sum_cosine or 0.0
    return max(0.0, ratio * ratio - 2.0 * ratio * cosine + 1.0)


def added_by_hand(run: Run) -> Sequence[Accumulator]:
    """Return the lines that add gradients up in half."""
    return [a for a in accumulators(run) if a.last.added == "gradient" and a.last.kind == "sum"]


def saturated_rows(run: Run) -> Sequence[OpRow]:
    """Return the backward operations that add rows up in half, with their error beside FP32."""
    return [
        row
        for row in op_rows(run)
        if row.direction == "backward"
        and row.op.rpartition(".")[2].strip("_").startswith(_ADDS_ROWS)
        and HALF_DTYPES & set(row.dtype_out.split(","))
        and not row.born
        and not row.overflowed
    ]
