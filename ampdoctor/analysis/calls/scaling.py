"""How the loss was scaled: by which means, by how much on which step, and how a scaler moved its scale."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import calls_named
from ampdoctor.analysis.columns import recorded_dtypes
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.wording import scale_text

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow, ScalerRow

DEFAULT_SCALE = 65536.0
"""Where torch.amp.GradScaler starts (2^16)."""

DEFAULT_GROWTH_INTERVAL = 2000
"""Steps without a skip after which torch.amp.GradScaler doubles its scale."""

ENDLESS_INTERVAL = 50 * DEFAULT_GROWTH_INTERVAL
"""A growth interval this long means "never": at torch's default, 50 doublings would have come and gone."""


SMALLEST_HAND_SCALE = 8.0
"""Smaller factors are mostly weights of losses (the squared temperature of a distillation: 4), and as a loss scale
they would move gradients by less than three of FP16's 40 binades."""


class ScalingKind(str, Enum):
    """By which means the loss was scaled."""

    NONE = "none"
    DISABLED = "disabled"
    HAND_WRITTEN = "hand-written"
    STATIC = "static"
    DYNAMIC = "dynamic"


@dataclass(frozen=True)
class LossScaling:
    """The loss scaling of a run.

    Attributes:
        kind: by which means.
        first: the first scale in force; None where none is known.
        last: the scale at the end of what was recorded.
        config: the scaler's own settings; None without a scaler.
        factor: number by which the loss was multiplied in code, the scaler's scale left out (1/8 for `loss / 8`).
    """

    kind: ScalingKind
    first: float | None = None
    last: float | None = None
    config: ScalerRow | None = None
    factor: float = 1.0

    @property
    def automatic(self) -> bool:
        """An enabled GradScaler skips steps with nonfinite gradients."""
        return self.kind in {ScalingKind.STATIC, ScalingKind.DYNAMIC}

    @property
    def total_factor(self) -> float:
        """Number by which code multiplied the loss, a hand-written loss scale included."""
        by_hand = self.last if self.kind is ScalingKind.HAND_WRITTEN else None
        return self.factor * (by_hand or 1.0)

    @property
    def phrase(self) -> str:
        """The scaling as a noun phrase: "a loss scale pinned at 4"."""
        first = scale_text(self.first) if self.first is not None else "unknown"
        last = scale_text(self.last) if self.last is not None else "unknown"
        moved = f"from {first} to {last}" if self.first != self.last else f"at {last}"
        return {
            ScalingKind.NONE: "no loss scaling",
            ScalingKind.DISABLED: "a GradScaler that is disabled",
            ScalingKind.HAND_WRITTEN: f"a hand-written loss scale of {last}",
            ScalingKind.STATIC: f"a loss scale pinned at {last}",
            ScalingKind.DYNAMIC: f"dynamic loss scaling {moved}" if last != "unknown" else "dynamic loss scaling",
        }[self.kind]


@once_per_run
def loss_scaling(run: Run) -> LossScaling:
    """Return how the loss of `run` was scaled."""
    seen = [row for row in run.scaler if row.event == "seen"]
    backwards = [row for row in calls_named(run, "backward") if row.factor is not None]
    factor = median(row.factor or 1.0 for row in backwards) if backwards else 1.0
    config = next((row for row in seen if row.enabled), None)
    if config is not None:
        scales = [s for row in run.scaler for s in (row.scale, row.scale_after) if s is not None]
        kind = ScalingKind.DYNAMIC if _grows(run, config) else ScalingKind.STATIC
        first, last = (scales[0], scales[-1]) if scales else (None, None)
        return LossScaling(kind, first, last, config, factor)
    by_hand = [scale for row in backwards if (scale := _hand_scale(row)) is not None]
    if not _fp16_gradients(run):
        by_hand = []
    if 2 * len(by_hand) > len(backwards):
        return LossScaling(ScalingKind.HAND_WRITTEN, by_hand[0], by_hand[-1], None, factor / by_hand[-1])
    return LossScaling(ScalingKind.DISABLED if seen else ScalingKind.NONE, factor=factor)


@once_per_run
def hand_scales(run: Run) -> dict[int, float]:
    """Return the hand-written loss scale by step; empty where there is none."""
    if loss_scaling(run).kind is not ScalingKind.HAND_WRITTEN:
        return {}
    return {row.step: scale for row in calls_named(run, "backward") if (scale := _hand_scale(row)) is not None}


def _hand_scale(row: CallRow) -> float | None:
    """Return the number by which code scaled a loss up; None where it did not.

    It is the largest of the loss's factors, as a loss may be averaged or weighted too.
    """
    largest = row.largest_factor or row.factor or 1.0
    return largest if largest >= SMALLEST_HAND_SCALE else None


def _fp16_gradients(run: Run) -> bool:
    """Whether anything in FP16 was recorded that gradients pass through: without it nobody scales a loss."""
    return "float16" in recorded_dtypes(run, "activation", "grad_output") or any(
        row.cast_to == "float16" for row in run.tensors("grad_output")
    )


def _grows(run: Run, config: ScalerRow) -> bool:
    if _held_by_hand(run):
        return False
    if any(row.event == "growth" or _raised(row) for row in run.scaler):
        return True
    endless = (config.growth_interval or DEFAULT_GROWTH_INTERVAL) >= ENDLESS_INTERVAL
    return not endless and (config.growth_factor or 2.0) > 1.0


def _held_by_hand(run: Run) -> bool:
    """Whether code takes back each growth of the scale, or sets it to the same number again and again."""
    moves = [row for row in run.scaler if row.event in {"growth", "backoff", "set"}][-2:]
    if [row.event for row in moves][1:] != ["set"] or moves[0].event == "backoff":
        return False
    return moves[1].scale_after == moves[0].scale


def _raised(row: ScalerRow) -> bool:
    """Whether the scale was raised by hand: it is not pinned then either."""
    return row.event == "set" and (row.scale_after or 0.0) > (row.scale or 0.0)
