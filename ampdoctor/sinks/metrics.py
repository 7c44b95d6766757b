"""The numbers of each step that trackers get. All are from the trace, by the functions that the rules judge by.

Of every step: the columns of `steps` below, and `skipped_steps`, those skipped so far. Of examined steps, of all
gradients of weights and outputs as they were held (a loss scale is in them):

- `gradient_zero_share_observed`: elements that are zero, which says nothing about why;
- `gradient_absmax`: the largest finite magnitude; FP16 holds up to 65504;
- `gradient_nonfinite_elements`, `activation_nonfinite_elements`: NaN and infinite ones;
- `gradient_flushed_share_estimated`: elements of the weight gradients that half precision made zero; `…_measured`:
  beside an FP32 twin, and with it `gradient_cosine_measured`;
- `worst_site_lost_energy_share_estimated`: the largest share of one gradient's energy (sum of squares) that FP16
  flushed; `…_measured`: at casts, where both values were seen.

What was not measured is left out, never zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.whatif import recorded_step, what_if
from ampdoctor.analysis.backward.gradients import gradient_steps
from ampdoctor.analysis.twins.measured import measured_steps
from ampdoctor.sinks.base import PREFIX, StepMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow

    Values = Mapping[str, float | None]

COLUMNS = (
    "loss", "loss_scale", "grad_norm", "lr", "wall_ms", "examination_ms", "allocated_bytes", "peak_bytes",
    "held_graphs",
)  # fmt: skip
"""Columns of `steps` that are metrics as they are, under the same names."""

GRADIENTS = frozenset({"weight_grad", "grad_output"})


class Summaries:
    """Sums the steps of a run up, one stretch after another."""

    def __init__(self) -> None:
        self._skipped = 0

    def of(self, stretch: Run) -> Iterator[StepMetrics]:
        """Yield the numbers of each step of `stretch`, which follows on the one before."""
        examined = _examined(stretch)
        for row in stretch.steps:
            values: dict[str, float | None] = {name: getattr(row, name) for name in COLUMNS}
            if row.applied is not None:
                self._skipped += not row.applied
                values["skipped_steps"] = self._skipped
            values |= examined.get(row.step, {})
            known = {PREFIX + name: float(value) for name, value in values.items() if value is not None}
            yield StepMetrics(row.step, row.time, known)


def _examined(stretch: Run) -> Mapping[int, Values]:
    rows: dict[int, list[TensorRow]] = {}
    for row in stretch.tensors("activation", *GRADIENTS):
        rows.setdefault(row.step, []).append(row)
    found: dict[int, dict[str, float | None]] = {}
    for step, held in rows.items():
        weights = any(r.role == "weight_grad" for r in held)
        found[step] = {**_counted(held), **(_estimated(stretch, step) if weights else {})}
    for fp16 in gradient_steps(stretch):
        casts, others = ([s.lost for s in fp16.all_sites if s.counted is there] for there in (True, False))
        found[fp16.row.step] |= {
            "worst_site_lost_energy_share_measured": max(casts, default=None),
            "worst_site_lost_energy_share_estimated": max(others, default=None),
        }
    for twins in measured_steps(stretch):
        if twins.run is not None:
            found.setdefault(twins.step, {}).update(
                gradient_flushed_share_measured=twins.run.flushed, gradient_cosine_measured=twins.run.gradient.cosine
            )
    return found


def _counted(rows: list[TensorRow]) -> Values:
    gradients = [r for r in rows if r.role in GRADIENTS]
    activations = [r for r in rows if r.role == "activation"]
    numel = sum(r.numel for r in gradients)
    return {
        "gradient_zero_share_observed": sum(r.zeros for r in gradients) / numel if numel else None,
        "gradient_absmax": max((r.absmax for r in gradients), default=None),
        "gradient_nonfinite_elements": sum(r.nonfinite for r in gradients) if gradients else None,
        "activation_nonfinite_elements": sum(r.nonfinite for r in activations) if activations else None,
    }


def _estimated(stretch: Run, step: int) -> Values:
    """Return what `ampdoctor whatif` says of the run's own format and scale; a run in FP32 has no half to flush in."""
    answer = what_if(recorded_step(stretch, step))
    return {"gradient_flushed_share_estimated": answer.total.estimated} if answer.own_format is not None else {}
