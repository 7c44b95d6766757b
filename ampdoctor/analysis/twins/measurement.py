"""What twins measured on one step: the run's own gradient, and that in each other setting, beside FP32's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.twins.twin_numbers import cosine_text, flushed_share, wrong_share
from ampdoctor.analysis.wording import percent

if TYPE_CHECKING:
    from ampdoctor.trace.schema import TwinRow

RUN = "run"
"""Name of the counterfactual that holds what the run itself computed."""

FP32 = "fp32"
"""Name of the counterfactual that all others are compared with."""


@dataclass(frozen=True)
class Measurement:
    """One setting on one twin step, beside the FP32 twin.

    Attributes:
        gradient: all weight gradients together.
        weights: each weight gradient by itself.
        outputs: each gradient on its way through the model (role grad_output).
        loss: the value of the loss; None where not recorded.
    """

    gradient: TwinRow
    weights: tuple[TwinRow, ...] = ()
    outputs: tuple[TwinRow, ...] = ()
    loss: float | None = None

    @property
    def name(self) -> str:
        """The setting: `run`, `bf16`, `fp16@2^10`."""
        return self.gradient.counterfactual

    @property
    def flushed(self) -> float:
        """Share of the elements nonzero in FP32 that are zero here."""
        return flushed_share(self.gradient)

    @property
    def finite(self) -> bool:
        """Neither this gradient nor that of the FP32 twin holds a NaN or an infinity."""
        return not (self.gradient.nonfinite or self.gradient.nonfinite_fp32)

    @property
    def wrong(self) -> float | None:
        """Energy of the difference to FP32, as a share of FP32's; None where not known."""
        return wrong_share(self.gradient)

    @property
    def phrase(self) -> str:
        """What was measured: "flushed 18.5 %, cosine 0.71"."""
        cosine = self.gradient.cosine
        turned = "" if cosine is None else f", cosine {cosine_text(cosine)}"
        return f"flushed {percent(self.flushed)}{turned}"


@dataclass(frozen=True)
class MeasuredStep:
    """One step on which settings were compared over the whole gradient.

    Attributes:
        step: index of the step.
        settings: what was measured, by the name of the setting.
    """

    step: int
    settings: dict[str, Measurement]

    @property
    def run(self) -> Measurement | None:
        """What the run itself computed; None where that is missing or a side of it is not finite."""
        own = self.settings.get(RUN)
        return own if own is not None and own.finite else None

    @property
    def others(self) -> tuple[Measurement, ...]:
        """The settings that may be cures: all but the run's own and FP32, where they are finite."""
        return tuple(m for m in self.settings.values() if m.name not in {RUN, FP32} and m.finite)

    def before_after(self, setting: str, fp32: str = "FP32") -> str | None:
        """Return what `setting` changes: "flushed 18.5 % → 0 %, cosine 0.71 → 0.9999"; None where not measured.

        `fp32` is what to call that which both were compared with; where it is no plain FP32, that is said too.
        """
        before, after = self.run, self.settings.get(setting)
        if before is None or after is None or not after.finite:
            return None
        parts = [f"flushed {percent(before.flushed)} → {percent(after.flushed)}"]
        old, new = before.gradient.cosine, after.gradient.cosine
        if old is not None and new is not None:
            to = "" if fp32 == "FP32" else f" to {fp32}"
            parts.append(f"cosine{to} {cosine_text(old)} → {cosine_text(new)}")
        elif new is not None:
            parts.append(f"cosine to {fp32} {cosine_text(new)}")
        return ", ".join(parts)
