"""Why a step is not finite: the first operation that makes NaN or infinities, and what its values come from and go to.

Decided by structure alone: which operation it is, which ones its inputs were made by, and which ones its result
reaches. Names of modules and variables say nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import nonfinite_steps
from ampdoctor.analysis.forward.birth_shapes import (
    cancelled_before,
    feeds_norm,
    feeds_softmax,
    lost_guard,
    mask_before,
    probability_before,
)
from ampdoctor.analysis.forward.first_loss import births_of
from ampdoctor.analysis.forward.forward_reach import harmed_steps
from ampdoctor.analysis.forward.op_flow import Flow, is_product
from ampdoctor.analysis.forward.operations import operations
from ampdoctor.analysis.forward.passes import is_mask
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.fp32_finite import carried_finite

if TYPE_CHECKING:
    from ampdoctor.analysis.forward.operations import Origin
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow


class Kind(Enum):
    """What is wrong, each the matter of one rule."""

    ACTIVATION = "activation-overflow"
    ATTENTION = "attention-overflow"
    NORM = "norm-overflow"
    LOSS = "loss-overflow"
    LOG = "log-of-zero-underflow"
    EPS = "eps-underflow"
    CANCELLATION = "cancellation-half"
    MASK = "mask-constant-overflow"


@dataclass(frozen=True)
class Cause:
    """Why one step is not finite.

    Attributes:
        kind: what is wrong.
        birth: the first operation whose result is not finite.
        other: the operation that it takes two for: the softmax that rounded to zero, the sum that lost its epsilon,
            the difference that cancelled, what divides by an infinite norm, what made a mask infinite.
        harm: "the loss is nan"; None where the step is finite all the same.
    """

    kind: Kind
    birth: Origin
    other: OpRow | None
    harm: str | None

    @property
    def step(self) -> int:
        """The step."""
        return self.birth.row.step


def causes_of(run: Run, kind: Kind) -> list[Cause]:
    """Return the steps on which `kind` is what is wrong, in order."""
    return [c for c in causes(run).values() if c.kind is kind]


@once_per_run
def causes(run: Run) -> dict[int, Cause]:
    """Return why steps are not finite, by step, where local twins were there and precision is the reason.

    Steps whose weights are broken already are left out: what comes first on them came before.
    """
    broken = min(nonfinite_steps(run, "weight"), default=math.inf)
    harmed = harmed_steps(run)
    found = {}
    for step, rows in sorted(operations(run).items()):
        if step < broken and carried_finite(run, step) is not False:
            flow = Flow.of(rows)
            cause = _first(run, flow, step, harmed.get(step))
            if cause is not None:
                found[step] = cause
    return found


def _first(run: Run, flow: Flow, step: int, harm: str | None) -> Cause | None:
    births = births_of(run, step)
    for birth in births:
        found = _kind(run, flow, birth)
        if found is None:
            continue
        kind, other = found
        # A norm that overflows makes zeros of what it divides, and nobody is told.
        if harm is None and kind is not Kind.NORM:
            continue
        if _may_be_calibration(run, step, births) and kind not in {Kind.NORM, Kind.EPS}:
            continue
        return Cause(kind, birth, other, harm)
    return None


def _may_be_calibration(run: Run, step: int, births: list[Origin]) -> bool:
    """Whether the loss is finite and the backward pass overflows by itself, as it does at a loss scale too large."""
    loss = next((s.loss for s in run.steps if s.step == step), None)
    backward = [b for b in births if b.row.direction == "backward"]
    return loss is not None and math.isfinite(loss) and bool(backward) and backward[0].overflows


def _kind(run: Run, flow: Flow, birth: Origin) -> tuple[Kind, OpRow | None] | None:
    """Return what is wrong where `birth` is the first that is not finite; None where precision is not to blame."""
    row = birth.row
    if birth.overflows:
        return _overflow(run, flow, row) if row.direction == "forward" else None
    if (mask := mask_before(flow, row)) is not None:
        return Kind.MASK, mask
    proven = carried_finite(run, row.step) is True
    if (probability := probability_before(flow, row, proven=proven)) is not None:
        return Kind.LOG, probability
    if (difference := cancelled_before(flow, row)) is not None:
        return Kind.CANCELLATION, difference
    if (guard := lost_guard(flow, row)) is not None:
        return Kind.EPS, guard
    return None


def _overflow(run: Run, flow: Flow, row: OpRow) -> tuple[Kind, OpRow | None]:
    if row.inputs_from is None:
        return Kind.ACTIVATION, None  # recorded without what goes into what
    if (norm := feeds_norm(flow, row, by_root=True)) is not None:
        return Kind.NORM, norm
    weighted = is_product(row) and flow.has_leaf(row)
    last = not any(is_product(r) for r in flow.after(row, lambda _: True))
    if last and not weighted and _network_finite(run, row.step):
        return Kind.LOSS, None
    if not weighted and (softmax := feeds_softmax(flow, row)) is not None:
        return Kind.ATTENTION, softmax
    if (norm := feeds_norm(flow, row, by_root=False)) is not None:
        return Kind.NORM, norm
    return Kind.ACTIVATION, None


def _network_finite(run: Run, step: int) -> bool:
    """Whether all that modules with parameters hand on is finite; a single number among it is a loss."""
    weighted = [m.module for m in run.modules if m.parameters]
    above = {""} | {p for m in weighted for p in _and_above(m)}
    return not any(
        row.nonfinite and row.numel > 1 and not is_mask(row)
        for row in run.tensors("activation")
        if row.step == step and row.slot.startswith("out") and row.module in above
    )


def _and_above(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]
