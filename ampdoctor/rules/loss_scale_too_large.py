"""The rule loss-scale-too-large."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.columns import nonfinite_steps
from ampdoctor.analysis.cures import bf16_autocast, dynamic_scaler
from ampdoctor.analysis.gradients import fp16_gradients_missing, gradient_steps
from ampdoctor.analysis.loss import loss_curve
from ampdoctor.analysis.overflow import backward_overflows
from ampdoctor.analysis.scale_range import scale_range
from ampdoctor.analysis.scale_updates import scale_updates
from ampdoctor.analysis.scaling import LossScaling, ScalingKind, loss_scaling
from ampdoctor.analysis.wording import counted, number, percent, place, scale_code, scale_text
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import FP16
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.gradient_sites import GradientSite
    from ampdoctor.analysis.gradients import GradientStep
    from ampdoctor.analysis.scale_range import ScaleRange
    from ampdoctor.trace.run import Run


def _step(
    run: RunBuilder, top: int, *, inf: int = 0, scale: float | None = None, factor: float = 1.0
) -> None:
    """One step whose FP16 gradients reach 2^top, `inf` of them beyond FP16's range."""
    run.step(loss=2.3, loss_scale=scale, found_inf=bool(inf and scale), applied=not (inf and scale))
    run.tensor("head", "activation", dtype="float16", exponents={0: 100}, inputs_finite=True)
    run.call("backward", scaled="none" if scale is None else "all", factor=factor)
    run.tensor(
        "head", "grad_output", dtype="float16", exponents={top: 100}, posinf=inf, loss_scale=scale
    )


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
            run.scaler(
                "seen", enabled=True, scale=2.0**24, backoff_factor=0.9999, growth_interval=10**9
            )
        run.scaler("skip", scale=2.0**24, found_inf=True).scaler(
            "hold", scale=2.0**24, scale_after=2.0**24
        )
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
        comes from the forward pass: then no scale helps. A diverging loss.
    """

    code = "AMP103"
    name = "loss-scale-too-large"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    after = ("activation-overflow", "backward-under-autocast", "nan-not-precision")
    thresholds = {
        "skipped_share": Threshold(
            0.5, "half of all steps thrown away, and the scale is no lower for it"
        ),
        "scale_kept": Threshold(0.5, "a single backoff of torch's default halves the scale"),
        "steps": Threshold(10, "fewer skips than this are a calibration"),
        "near_max": Threshold(
            16, "four binades under 65504: gradients of one batch and the next differ by as much"
        ),
        "diverged": Threshold(100, "a loss this many times its start diverges by itself"),
    }
    HEALTHY = (
        Example("a dynamic scaler finds its scale", _calibration),
        Example("a hand-written factor that fits", _fits),
    )
    SICK = (
        Example("a hand-written factor of 2^22", _hand_written),
        Example("weights that break between two examined steps", _broken_unseen),
        Example("a scaler that can't step back", _scaler_that_stays),
    )

    def lacks(self, run: Run) -> list[str]:
        return run.missing(self.needs) or fp16_gradients_missing(run)

    def check(self, run: Run) -> Iterator[Finding]:
        scaling = loss_scaling(run)
        by_hand = scaling.kind is ScalingKind.HAND_WRITTEN
        overflows = backward_overflows(run)
        if overflows and (by_hand or self._stuck(run)):
            first = overflows[0]
            evidence = [
                _site_evidence(first.first),
                Evidence(
                    "largest_activation",
                    first.largest_activation,
                    f"The forward pass is finite on that step: no value above {number(first.largest_activation)}.",
                ),
            ]
            yield self._finding(run, scaling, first.step, first.first, evidence, Confidence.HIGH)
        elif by_hand and not overflows:
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
        before = [
            s
            for s in gradient_steps(run)
            if s.finite and broken is not None and s.row.step < broken
        ]
        if not before or loss_curve(run).growth_before(broken or 0) >= self.threshold("diverged"):
            return
        top = max(before[-1].sites, key=lambda s: s.histogram.absmax)
        if top.histogram.absmax * self.threshold("near_max") >= FP16.max:
            text = f"The weights hold NaN or infinities on step {broken}."
            evidence = [_site_evidence(top), Evidence("weights_broken_step", broken or 0, text)]
            yield self._finding(run, scaling, before[-1], top, evidence, Confidence.MEDIUM)

    def _finding(
        self, run: Run, scaling: LossScaling, step: GradientStep, site: GradientSite, seen: list[Evidence],
        confidence: Confidence,
    ) -> Finding:  # fmt: skip
        whole = replace(step, weights=step.weights + step.vectors)
        scales = scale_range([whole], weights_scaled=scaling.automatic)
        skipped = sum(s.found_inf is True for s in run.steps)
        result = "nothing checks for it" if not scaling.automatic else "the scaler can't lower it"
        text = f"The loss is multiplied by {scale_text(scales.current)}, and {result}."
        evidence = [Evidence("loss_scale", scales.current, text), *seen]
        if skipped:
            share = skipped / len(run.steps)
            text = f"{percent(share)} of {counted(len(run.steps), 'step')} are skipped."
            evidence.append(Evidence("skipped_share", share, text))
        last = max((s.row.step for s in gradient_steps(run) if not s.finite), default=step.row.step)
        return self.finding(
            f"A loss scale of {scale_text(scales.current)} drives the gradient at {place(site.name)} beyond FP16's "
            f"65504, and {result}.",
            evidence=evidence,
            fixes=_fixes(run, scaling, _smaller(scales)),
            location=Location((f"{site.row.site} ({site.row.role})",), step.row.step, last),
            confidence=confidence,
        )


def _smaller(scales: ScaleRange) -> float:
    """Return the scale to take: one that fits what was seen, and in any case smaller than the one that did not."""
    fits = scales.peak.largest_scale if scales.peak else 1.0
    return min(fits, float(2.0 ** (math.ceil(math.log2(scales.current)) - 1)))


def _site_evidence(site: GradientSite) -> Evidence:
    count = site.histogram.nonfinite
    if count:
        text = f"{count} of {site.histogram.numel} elements of the gradient at {place(site.name)} are infinite or NaN."
        return Evidence(
            "nonfinite_elements", count, f"{text} It is the first in the backward pass."
        )
    peak = site.histogram.absmax
    return Evidence(
        "largest_gradient", peak, f"The gradient at {place(site.name)} reaches {number(peak)}."
    )


def _fixes(run: Run, scaling: LossScaling, largest: float) -> list[Fix]:
    fixes = [
        dynamic_scaler(
            run,
            largest,
            "Steps with infinite gradients are skipped, and the scale is halved until they fit.",
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
