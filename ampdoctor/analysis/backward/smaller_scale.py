"""A smaller loss scale, where one drives gradients beyond FP16: how large it may be, and the code for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import bf16_autocast, dynamic_scaler
from ampdoctor.analysis.wording import scale_code, scale_text
from ampdoctor.finding import Fix

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.scale_range import Peak
    from ampdoctor.analysis.calls.scaling import LossScaling
    from ampdoctor.trace.run import Run


def smaller_scale(current: float, peak: Peak | None) -> float:
    """Return the scale to take: one that fits what was seen, and in any case smaller than the one that did not."""
    fits = peak.largest_scale if peak and peak.value else 1.0
    return min(fits, float(2.0 ** (math.ceil(math.log2(current)) - 1)))


def smaller_scale_fixes(run: Run, scaling: LossScaling, largest: float) -> list[Fix]:
    """Return how to change the code to scale by `largest` at most, best first."""
    fixes = [
        dynamic_scaler(
            run, largest, "Steps with infinite gradients are skipped, and the scale is halved until they fit."
        ),
        bf16_autocast(run, "Gradients keep FP32's range without any scale."),
    ]
    if not scaling.automatic:
        code = f"""\
SCALE = {scale_code(largest)}
(loss * SCALE).backward()
grads = [p.grad.div_(SCALE) for p in model.parameters() if p.grad is not None]
if all(g.isfinite().all() for g in grads):
    optimizer.step()"""
        expected = f"At most {scale_text(largest)} fits what was seen; a step that overflows all the same does no harm."
        fixes.append(Fix("Keep the hand-written factor, make it smaller and check", code, expected))
    return fixes
