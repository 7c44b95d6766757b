"""The rule loss-scale-too-large."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.measured_fixes import with_measured
from ampdoctor.analysis.backward.gradients import fp16_gradients_missing, gradient_steps
from ampdoctor.analysis.backward.overflow import backward_overflows
from ampdoctor.analysis.backward.scale_range import Peak, scale_range
from ampdoctor.analysis.backward.smaller_scale import smaller_scale, smaller_scale_fixes
from ampdoctor.analysis.calls.scale_updates import scale_updates
from ampdoctor.analysis.calls.scaling import LossScaling, ScalingKind, hand_scales, loss_scaling
from ampdoctor.analysis.columns import nonfinite_steps
from ampdoctor.analysis.loss import loss_curve
from ampdoctor.analysis.twins.fp32_finite import finite_in_fp32, first_overflow, largest_gradient, overflows_made
from ampdoctor.analysis.wording import counted, number, percent, place, scale_text
from ampdoctor.analysis.words.origin_report import origin_evidence, twin_evidence
from ampdoctor.analysis.words.overflow_report import gradient_evidence
from ampdoctor.finding import Confidence, Evidence, Finding, Grade, Location, Severity
from ampdoctor.formats import FP16
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.backward.gradient_sites import GradientSite
    from ampdoctor.analysis.backward.gradients import GradientStep
    from ampdoctor.analysis.forward.operations import Origin
    from ampdoctor.trace.run import Run


@dataclass(frozen=True)
class _Overflow:
    """A gradient that the loss scale drives beyond FP16: where, at which scale, and what is known of it."""

    where: str
    scale: float
    peak: Peak | None
    evidence: list[Evidence]
    location: Location
    confidence: Confidence
    grade: Grade


def _step(run: RunBuilder, top: int, *, inf: int = 0, scale: float | None = None, factor: float = 1.0) -> None:
    """One step whose FP16 gradients reach 2^top, `inf` of them beyond FP16's range."""
    run.step(loss=2.3, loss_scale=scale, found_inf=bool(inf and scale), applied=not (inf and scale))
    run.tensor("head", "activation", dtype="float16", exponents={0: 100}, inputs_finite=True)
    run.call("backward", scaled="none" if scale is None else "all", factor=factor)
    run.tensor("head", "grad_output", dtype="float16", exponents={top: 100}, posinf=inf, loss_scale=scale)


def _hand_written() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    _step(run, 15, inf=20, factor=2.0**22)
    run.step(loss=math.nan).tensor("head", "weight", slot="weight", nan=100)
    return run.tensor("head", "activation", dtype="float16", nan=100, inputs_finite=False)


def _broken_unseen() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    _step(run, 14, factor=2.0**20)
    run.step(loss=math.nan)
    return run.tensor("head", "weight", slot="weight", nan=100)


def _scaler_that_stays() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for step in range(20):
        _step(run, 15, inf=20, scale=2.0**24)
        if step == 0:
            run.scaler("seen", enabled=True, scale=2.0**24, backoff_factor=0.9999, growth_interval=10**9)
        run.scaler("skip", scale=2.0**24, found_inf=True).scaler("hold", scale=2.0**24, scale_after=2.0**24)
    return run


def _calibration() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for step in range(20):
        scale = 65536.0 / 2.0 ** min(step, 6)
        _step(run, 14, inf=20 if step < 6 else 0, scale=scale)
        if step == 0:
            run.scaler("seen", enabled=True, scale=scale, backoff_factor=0.5, growth_interval=2000)
        after = scale / 2 if step < 6 else scale
        run.scaler("backoff" if step < 6 else "hold", scale=scale, scale_after=after)
    return run


def _fits() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for _ in range(6):
        _step(run, 6, factor=1024.0)
    return run


def _replayed(born_fp32: int) -> RunBuilder:
    """The step that overflowed was not examined, and computed again."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    _step(run, 6, factor=2.0**15)
    run.step(loss=2.3, examined=False).call("backward", scaled="none", factor=2.0**15)
    run.twin_step(kind="replay", confirmed=True).op("aten.mul", "head", source="replay")
    columns = {"born": 9, "born_fp32": born_fp32, "first_born": 7, "absmax": 9e4}
    run.op("aten.convolution_backward", "head", direction="backward", source="replay", **columns)
    return run.step(loss=math.nan).tensor("head", "weight", slot="weight", nan=100)


class LossScaleTooLarge(Rule):
    """The loss scale pushes gradients beyond FP16's largest number, and nothing lowers it.

    What it means
        FP16 ends at 65504. The loss is multiplied by a number that makes gradients larger than that in the backward
        pass, while loss, activations and weights are finite. A factor written by hand has no check for it: infinities
        go into the weights. A scaler that can't step back skips every step instead.

    Why it matters
        One step is enough: infinite weights make every later loss NaN. Or no step is ever taken.

    How to fix
        Use `torch.amp.GradScaler` with its defaults: it checks the gradients, skips the step and halves the scale. Or
        take a smaller factor, given in the evidence, and check for infinities before the optimizer steps. BF16 needs
        no scale.

    Not to be mistaken for
        A dynamic scaler that steps down from 65536 in the first steps: that is how it finds its scale. An infinity that
        comes from the forward pass: then no scale helps. A gradient that FP32 makes infinite too. A diverging loss.
    """

    code = "AMP103"
    name = "loss-scale-too-large"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    after = (
        "activation-overflow", "backward-under-autocast", "scaler-bypassed",
        "optimizer-stepped-twice", "gradient-penalty-scaled", "stale-inf-grads",
    )  # fmt: skip
    thresholds = {
        "skipped_share": Threshold(0.5, "half of all steps thrown away, and the scale is no lower for it"),
        "scale_kept": Threshold(0.5, "a single backoff of torch's default halves the scale"),
        "steps": Threshold(10, "fewer skips than this are a calibration"),
        "near_max": Threshold(16, "four binades under 65504: gradients of one batch and the next differ by as much"),
        "diverged": Threshold(100, "a loss this many times its start diverges by itself"),
    }
    HEALTHY = (
        Example("a dynamic scaler finds its scale", _calibration),
        Example("a hand-written factor that fits", _fits),
        Example("a gradient that FP32 makes infinite too", lambda: _replayed(9)),
    )
    SICK = (
        Example("a hand-written factor of 2^22", _hand_written),
        Example("weights that break between two examined steps", _broken_unseen),
        Example("a scaler that can't step back", _scaler_that_stays),
        Example("an overflow on a step that was computed again", lambda: _replayed(0)),
    )

    def lacks(self, run: Run) -> list[str]:
        return run.missing(self.needs) or fp16_gradients_missing(run)

    def check(self, run: Run) -> Iterator[Finding]:
        scaling = loss_scaling(run)
        by_hand = scaling.kind is ScalingKind.HAND_WRITTEN
        if not by_hand and not self._stuck(run):
            return
        overflows = [o for o in backward_overflows(run) if finite_in_fp32(run, o.step.row.step) is not False]
        failed = [s.step for s in run.steps if s.loss is None or math.isfinite(s.loss)]
        made = overflows_made(run, failed, "backward")
        if overflows:
            first = overflows[0]
            evidence = [
                gradient_evidence(first.first),
                Evidence(
                    "largest_activation",
                    first.largest_activation,
                    f"The forward pass is finite on that step: no value above {number(first.largest_activation)}.",
                ),
            ]
            yield self._finding(run, scaling, first.step, first.first, evidence, Confidence.HIGH)
        elif made:
            yield self._by_operation(run, scaling, made)
        elif by_hand and not backward_overflows(run):
            yield from self._unseen(run, scaling)

    def _stuck(self, run: Run) -> bool:
        """Whether a scaler skips most steps and does not come down."""
        for name, updates in scale_updates(run).items():
            skips = (r.step for r in run.scaler if r.scaler == name and r.event == "skip")
            skipped = len({*skips, *(u.step for u in updates if u.event == "backoff")})
            kept = updates[-1].after >= self.threshold("scale_kept") * updates[0].before
            grew = any(u.event == "growth" for u in updates)
            often = skipped >= self.threshold("skipped_share") * len(updates)
            if kept and not grew and often and skipped >= self.threshold("steps"):
                return True
        return False

    def _unseen(self, run: Run, scaling: LossScaling) -> Iterator[Finding]:
        """The weights broke on a step that was not examined: the last gradients before it had come near the limit."""
        broken = min(nonfinite_steps(run, "weight"), default=None)
        before = [s for s in gradient_steps(run) if s.finite and broken is not None and s.row.step < broken]
        if not before or loss_curve(run).growth_before(broken or 0) >= self.threshold("diverged"):
            return
        top = max(before[-1].sites, key=lambda s: s.histogram.absmax)
        if top.histogram.absmax * self.threshold("near_max") >= FP16.max:
            text = f"The weights hold NaN or infinities on step {broken}."
            evidence = [gradient_evidence(top), Evidence("weights_broken_step", broken or 0, text)]
            yield self._finding(run, scaling, before[-1], top, evidence, Confidence.MEDIUM)

    def _finding(
        self, run: Run, scaling: LossScaling, step: GradientStep, site: GradientSite, seen: list[Evidence],
        confidence: Confidence,
    ) -> Finding:  # fmt: skip
        whole = replace(step, weights=step.weights + step.vectors)
        scales = scale_range([whole], weights_scaled=scaling.automatic)
        origin = first_overflow(run, step.row.step, "backward")
        last = max((s.row.step for s in gradient_steps(run) if not s.finite), default=step.row.step)
        site_name = f"{site.row.site} ({site.row.role})"
        source = origin.source if origin else None
        found = _Overflow(
            place(site.name),
            scales.current,
            scales.peak,
            [*seen, *(origin_evidence(run, origin) if origin else ()), *twin_evidence(run, step.row.step)],
            Location((site_name,), step.row.step, last, source=source),
            confidence,
            Grade.MEASURED if origin else Grade.OBSERVED,
        )
        return self._told(run, scaling, found)

    def _by_operation(self, run: Run, scaling: LossScaling, made: list[Origin]) -> Finding:
        """The finding of a step that was not examined, and whose operations were looked at all the same."""
        row = made[0].row
        current = row.loss_scale or hand_scales(run).get(row.step) or scaling.last or 1.0
        site_name = f"{row.module or row.op} (grad_output)"
        found = _Overflow(
            place(row.module) if row.module else f"{place(row.op)} outside any module",
            current,
            Peak(largest_gradient(run, row.step) / current, row.module),
            [*origin_evidence(run, made[0]), *twin_evidence(run, row.step)],
            Location((site_name,), row.step, made[-1].row.step, source=made[0].source),
            Confidence.HIGH,
            Grade.MEASURED,
        )
        return self._told(run, scaling, found)

    def _told(self, run: Run, scaling: LossScaling, found: _Overflow) -> Finding:
        result = "nothing checks for it" if not scaling.automatic else "the scaler can't lower it"
        scale = scale_text(found.scale)
        text = f"The loss is multiplied by {scale}, and {result}."
        evidence = [Evidence("loss_scale", found.scale, text), *found.evidence]
        skipped = sum(s.found_inf is True for s in run.steps)
        if skipped:
            share = skipped / len(run.steps)
            text = f"{percent(share)} of {counted(len(run.steps), 'step')} are skipped."
            evidence.append(Evidence("skipped_share", share, text))
        smaller = smaller_scale(found.scale, found.peak)
        return self.finding(
            f"A loss scale of {scale} drives the gradient at {found.where} beyond FP16's 65504, and {result}.",
            evidence=evidence,
            fixes=with_measured(run, smaller_scale_fixes(run, scaling, smaller)),
            location=found.location,
            confidence=found.confidence,
            grade=found.grade,
        )
