"""The forward pass: where the first nonfinite value was born."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import nonfinite_steps
from ampdoctor.analysis.memo import once_per_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import StepRow, TensorRow

MASK_LIMIT = 2.0**13
"""A tensor with -inf whose finite values all stay below was masked, not overflowed.

Of a million normal values the largest is 5 standard deviations. Where that one passes 65504, a standard deviation is
13100 at least, and half of the others lie above 2^13.
"""


@dataclass(frozen=True)
class ForwardStep:
    """The forward pass of one examined step.

    Attributes:
        row: the step.
        activations: in order, up to the first nonfinite one.
        birth: the first nonfinite activation, masks left out; None where there is none.
        weights_finite: no weight recorded up to this step holds a NaN or an infinity.
    """

    row: StepRow
    activations: tuple[TensorRow, ...]
    birth: TensorRow | None
    weights_finite: bool

    @property
    def largest_half(self) -> TensorRow | None:
        """The activation with the largest finite value among those in FP16 before the birth."""
        half = [r for r in self.activations if r.dtype == "float16"]
        return max(half, key=lambda r: r.absmax, default=None)


@once_per_run
def forward_steps(run: Run) -> tuple[ForwardStep, ...]:
    """Return the forward passes of the examined steps, in order."""
    activations: dict[int, list[TensorRow]] = {}
    for r in run.tensors("activation"):
        activations.setdefault(r.step, []).append(r)
    broken = min(nonfinite_steps(run, "weight"), default=None)
    found = []
    for row in run.steps:
        rows = sorted(activations.get(row.step, []), key=lambda r: r.seq)
        if rows:
            before, birth = _until_birth(rows)
            found.append(ForwardStep(row, before, birth, broken is None or row.step < broken))
    return tuple(found)


def _until_birth(rows: Iterable[TensorRow]) -> tuple[tuple[TensorRow, ...], TensorRow | None]:
    before: list[TensorRow] = []
    for r in rows:
        if r.nonfinite and not is_mask(r):
            return tuple(before), r
        before.append(r)
    return tuple(before), None


def is_mask(row: TensorRow) -> bool:
    """Whether the infinities of an activation are a mask: -inf among values of ordinary size."""
    return row.neginf > 0 and row.nan == row.posinf == 0 and row.absmax < MASK_LIMIT
