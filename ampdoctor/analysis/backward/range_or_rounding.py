"""What turns a gradient away from that of FP32: values out of range, flushed on the way, or rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.twins.measured import wrong_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.analysis.twins.measured import MeasuredStep, Measurement
    from ampdoctor.trace.schema import TwinRow

REGAINED = 0.5
"""A setting with more range that leaves at most this share of the error shows that range was what was lacking."""

EXPLAINS = 0.01
"""Flushing one element in a hundred, or a hundredth of a gradient's energy, may explain that it is turned."""


def by_flushing(step: MeasuredStep, own: Measurement, row: TwinRow) -> bool:
    """Whether what is wrong with `row`, a gradient of the run itself, comes of range and not of rounding."""
    flushed = [row, *own.outputs]
    if not any(_explains(r) for r in flushed):
        return False  # a rival may be nearer by chance: a ReLU that rounding has flipped
    wrong = wrong_share(row) or 0.0
    rivals = [(m, r) for m in step.others if _wider(m, own) and (r := _same(m, row)) is not None]
    errors = [w for _, r in rivals if (w := wrong_share(r)) is not None]
    if any(w <= REGAINED * wrong for w in errors):
        return True
    # With the flushing gone, or all the range there is, the error has stayed.
    return not any(_is_bf16(m) or r.flushed <= REGAINED * row.flushed < row.flushed for m, r in rivals)


def _explains(row: TwinRow) -> bool:
    share = row.underflowed / row.nonzero if row.nonzero else 0.0
    return share >= EXPLAINS or (row.energy_lost or 0.0) >= EXPLAINS


def _wider(other: Measurement, own: Measurement) -> bool:
    """Whether a setting has more room for small gradients than the run had."""
    a = other.gradient
    larger = (a.loss_scale or 1.0) > (own.gradient.loss_scale or 1.0)
    return larger or bool(a.fp32_modules) or _is_bf16(other)


def _is_bf16(setting: Measurement) -> bool:
    return setting.name.startswith("bf16")


def _same(other: Measurement, row: TwinRow) -> TwinRow | None:
    """Return the gradient that `row` is, as it is in another setting."""
    rows: Sequence[TwinRow] = (other.gradient, *other.weights)
    key = (row.role, row.module, row.slot, row.call)
    return next((r for r in rows if (r.role, r.module, r.slot, r.call) == key), None)
