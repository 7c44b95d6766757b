"""Running statistics that an overflow has made NaN while the training itself went on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import nonfinite_steps, trains_in_fp16
from ampdoctor.analysis.forward.birth_causes import causes
from ampdoctor.analysis.forward.passes import forward_steps
from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow


@dataclass(frozen=True)
class Poisoned:
    """Buffers that are not finite up to the end of a run whose weights are.

    Attributes:
        row: the first of them, as first seen.
        buffers: how many they are.
        last: the last step on which they were seen.
        born: the activation in FP16 that was the first not to be finite; None where that step was not examined.
        skipped: the last step before that the scaler skipped, where there is one.
        seen: an operation, an activation or a skip tells of the overflow; else it is only the likeliest cause.
        trained: steps with a finite loss after it.
    """

    row: TensorRow
    buffers: int
    last: int
    born: TensorRow | None
    skipped: int | None
    trained: int
    seen: bool = True

    @property
    def step(self) -> int:
        """The step that did it, as far as known."""
        if self.born is not None:
            return self.born.step
        return self.row.step if self.skipped is None else self.skipped


@once_per_run
def poisoned_buffers(run: Run) -> Poisoned | None:
    """Return the buffers that an overflow in FP16 has poisoned; None where there are none, or all is lost."""
    rows = run.tensors("buffer")
    latest = {(r.module, r.slot): r for r in rows}
    bad = {site for site, r in latest.items() if r.nan or r.posinf}
    first = next((r for r in rows if (r.module, r.slot) in bad and (r.nan or r.posinf)), None)
    if first is None or nonfinite_steps(run, "weight"):
        return None
    trained = sum(s.step > first.step and s.loss is not None and math.isfinite(s.loss) for s in run.steps)
    skipped = max((s.step for s in run.steps if s.found_inf and s.step <= first.step), default=None)
    if not trained or not trains_in_fp16(run):
        return None
    births = [f.birth for f in forward_steps(run) if f.birth and f.row.step <= first.step]
    born = next((b for b in births if b.dtype == "float16"), None)
    made = any(c.birth.overflows for step, c in causes(run).items() if step <= first.step)
    # Something that is not finite and not FP16 came first: data, or a division by zero.
    if born is None and not made and births:
        return None
    return Poisoned(
        first,
        len(bad),
        max(r.step for r in rows),
        born,
        skipped,
        trained,
        seen=made or born is not None or skipped is not None,
    )
