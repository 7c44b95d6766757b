"""The row of the `steps` table, once the step is over."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import torch

from ampdoctor.formats import SCALE_BEYOND_FP32
from ampdoctor.record.headroom import cuda_in_use
from ampdoctor.trace.schema import StepRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampdoctor.record.log import Scalar, StepLog, Values


def step_row(log: StepLog, wall_seconds: float, own_seconds: float, held_graphs: int) -> Callable[[Values], StepRow]:
    """Return the function that makes the row of `log` from the fetched numbers."""
    ended = time.time()
    allocated, peak = _allocator()

    def build(values: Values) -> StepRow:
        scale = values.number(log.scale)
        known = [(o.by_scaler, n) for o in log.outcomes if (n := values.number(o.skipped)) is not None]
        skips = [bool(number) for _, number in known]
        by_scaler = [bool(number) for scaler_asked, number in known if scaler_asked]
        return StepRow(
            step=log.step, time=ended, wall_ms=1e3 * wall_seconds, micro_batches=log.micro_batch,
            loss=summed(log.losses, values), loss_scale=scale, found_inf=any(by_scaler) if by_scaler else None,
            applied=not all(skips) if skips else None, grad_norm=values.number(log.grad_norm),
            lr=values.number(log.lr), totals_watched=log.totals_watched, examined=log.examined, reason=log.reason,
            examination_ms=1e3 * own_seconds if log.examined else None, allocated_bytes=allocated, peak_bytes=peak,
            held_graphs=held_graphs,
        )  # fmt: skip

    return build


def summed(losses: Sequence[tuple[Scalar, Scalar]], values: Values) -> float | None:
    """Add up what backward started from, without the loss scale.

    A root that is no scalar has no place in a curve, and of one that its scale has made infinite nothing is known.
    """
    total = 0.0
    for scalar, in_it in losses:
        value, scale = values.number(scalar), values.number(in_it)
        if value is None or (scale is not None and scale >= SCALE_BEYOND_FP32 and not math.isfinite(value)):
            return None
        total += value / scale if scale else value
    return total if losses else None


def _allocator() -> tuple[int | None, int | None]:
    if not cuda_in_use():
        return None, None
    return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
