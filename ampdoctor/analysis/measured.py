"""What twin steps measured of the whole gradient: what the run lost, and what each other setting would have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.wording import percent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TwinRow, TwinStepRow

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

    def before_after(self, setting: str) -> str | None:
        """Return what `setting` changes: "flushed 18.5 % → 0 %, cosine 0.71 → 0.9999"; None where not measured."""
        before, after = self.run, self.settings.get(setting)
        if before is None or after is None or not after.finite:
            return None
        parts = [f"flushed {percent(before.flushed)} → {percent(after.flushed)}"]
        old, new = before.gradient.cosine, after.gradient.cosine
        if old is not None and new is not None:
            parts.append(f"cosine {cosine_text(old)} → {cosine_text(new)}")
        return ", ".join(parts)


@once_per_run
def measured_steps(run: Run) -> tuple[MeasuredStep, ...]:
    """Return the twin steps that measured the whole gradient in some setting, in order."""
    refuted = refuted_replays(run)
    by_step: dict[int, dict[str, list[TwinRow]]] = {}
    for row in run.twins:
        if row.step not in refuted:
            by_step.setdefault(row.step, {}).setdefault(row.counterfactual, []).append(row)
    found = []
    for step in sorted(by_step):
        settings = {name: _measurement(rows) for name, rows in by_step[step].items()}
        known = {name: m for name, m in settings.items() if m is not None}
        if known:
            found.append(MeasuredStep(step, known))
    return tuple(found)


def earliest(run: Run) -> MeasuredStep | None:
    """Return the first step on which the run's own gradient was measured and finite."""
    return next((s for s in measured_steps(run) if s.run is not None), None)


def latest(run: Run) -> MeasuredStep | None:
    """Return the last such step."""
    return next((s for s in reversed(measured_steps(run)) if s.run is not None), None)


def worst(run: Run) -> MeasuredStep | None:
    """Return the one of them on which most of the gradient's energy was wrong."""
    steps = [s for s in measured_steps(run) if s.run is not None]
    return max(steps, key=_wrong_of_run, default=None)


def declined(run: Run) -> tuple[TwinStepRow, ...]:
    """Return the second opinions that were not given, or not in full."""
    return tuple(row for row in run.twin_steps if row.declined is not None)


@once_per_run
def refuted_replays(run: Run) -> frozenset[int]:
    """Return the steps whose only second opinion is a replay that did not come out as the step had."""
    confirmed = {r.step for r in run.twin_steps if r.confirmed is not False and r.kind != "local"}
    return frozenset(r.step for r in run.twin_steps if r.confirmed is False) - confirmed


def flushed_share(row: TwinRow) -> float:
    """Return the share of the elements nonzero in FP32 that are zero in `row`."""
    return row.flushed / row.nonzero if row.nonzero else 0.0


def wrong_share(row: TwinRow) -> float | None:
    """Return |g - g32|² / |g32|²: what is missing or wrong of a tensor, as a share of its FP32 energy.

    Where elements are only flushed this is the energy lost; what they spoil on their way down is in it too. None where
    a side is not finite, or nothing was there in FP32.
    """
    if row.nonfinite or row.nonfinite_fp32 or row.norm_ratio is None:
        return None
    if row.cosine is None:
        return 1.0 if row.norm_ratio == 0.0 else None
    return max(0.0, 1.0 - 2.0 * row.norm_ratio * row.cosine + row.norm_ratio**2)


def cosine_text(cosine: float) -> str:
    """Return a cosine in as many digits as tell it from 1: `0.71`, `0.9997`, `1`."""
    if cosine == 1.0:
        return "1"
    away = max(1.0 - abs(cosine), 1e-7)
    digits = 2 if away >= 0.01 else min(6, -math.floor(math.log10(away)))
    text = f"{cosine:.{digits}f}".rstrip("0")
    return "> 0.999999" if text == "1." else text


def _wrong_of_run(step: MeasuredStep) -> float:
    return (step.run.wrong if step.run else None) or 0.0


def _measurement(rows: Iterable[TwinRow]) -> Measurement | None:
    """Return the measurement that `rows` of one setting make up; None without one of the whole gradient."""
    by_role: dict[str, list[TwinRow]] = {}
    for row in rows:
        by_role.setdefault(row.role, []).append(row)
    gradient = _totals(by_role.get("gradient", ()))
    if not gradient:
        return None
    losses = [r.value for r in _totals(by_role.get("loss", ())) if r.value is not None]
    return Measurement(
        gradient[-1],
        _totals(by_role.get("weight_grad", ())),
        tuple(by_role.get("grad_output", ())),
        sum(losses) if losses else None,
    )


def _totals(rows: Iterable[TwinRow]) -> tuple[TwinRow, ...]:
    """Return the rows of the step as a whole where there are any, else those of the micro-batches."""
    everything = tuple(rows)
    return tuple(r for r in everything if r.micro_batch is None) or everything
