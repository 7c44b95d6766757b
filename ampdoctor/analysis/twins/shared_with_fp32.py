"""Steps that are not finite in FP32 either: by their twins, or because the run holds nothing in half precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import nonfinite_steps, recorded_dtypes, recorded_steps
from ampdoctor.analysis.forward.birth_causes import Kind, causes
from ampdoctor.analysis.forward.first_loss import births_of
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.fp32_finite import precision_alone
from ampdoctor.analysis.twins.measured import FP32
from ampdoctor.analysis.twins.opinions import op_rows, twin_rows
from ampdoctor.formats import HALF_DTYPES, SCALE_BEYOND_FP32

if TYPE_CHECKING:
    from ampdoctor.analysis.forward.operations import Origin
    from ampdoctor.trace.run import Run

MASKED = "softmax"
"""Part of the names of operations whose NaN of infinite inputs is a row of which everything is masked. Had an overflow
made the row so, that would be the first birth, but for a mask's constant that half makes infinite; any other operation
may get a zero that FP16 has flushed before it."""


@once_per_run
def without_half(run: Run) -> bool:
    """Whether activations were recorded, and nothing at all was in half: the run is its own FP32."""
    seen = recorded_dtypes(run, "activation", "grad_output", "weight", "weight_grad")
    held = {dtype for m in run.modules for dtype in m.dtypes}
    cast = run.table("tensors")["cast_to"].unique().to_pylist()
    autocast = (call.autocast for call in run.calls)
    halves = HALF_DTYPES & {d for d in (*seen, *held, *cast, *autocast) if d}
    return bool(recorded_dtypes(run, "activation")) and not halves


@once_per_run
def shared_steps(run: Run) -> tuple[int, ...]:
    """Return the steps that a second opinion found not to be finite in FP32 either, in order."""
    seen = {row.step for row in twin_rows(run)} | {row.step for row in op_rows(run)}
    beyond = {s.step for s in run.steps if (s.loss_scale or 1.0) >= SCALE_BEYOND_FP32}
    return tuple(step for step in sorted(seen - beyond) if _shared(run, step))


def _shared(run: Run, step: int) -> bool:
    alone = precision_alone(run, step)
    if alone is False or (weights_sound(run, step) and _lost_in_fp32(run, step)):
        return True
    cause = causes(run).get(step)
    if alone or (cause is not None and cause.kind is Kind.MASK):
        return False
    # Nothing is born of weights that are broken already.
    births = shared_births(run, step)
    return bool(births) and (without_half(run) or MASKED in births[0].row.op)


def _lost_in_fp32(run: Run, step: int) -> bool:
    """Whether the loss of the FP32 twin of `step` is NaN or infinite."""
    losses = (
        r.value
        for r in twin_rows(run)
        if (r.step, r.counterfactual, r.role) == (step, FP32, "loss") and r.value is not None
    )
    return any(not math.isfinite(value) for value in losses)


def shared_births(run: Run, step: int) -> list[Origin]:
    """Return what makes values of `step` that are not finite; nothing where FP32 does not share all of it."""
    births = births_of(run, step)
    return births if all(b.finite_in_fp32 is False for b in births) else []


def weights_sound(run: Run, step: int) -> bool:
    """Whether the weights were finite: those that are not make every format NaN, whatever had broken them."""
    broken = nonfinite_steps(run, "weight")
    known = step in recorded_steps(run, "weight") or not broken
    return known and (not broken or step < min(broken))
