"""The rule loss-scale-too-small."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import bf16_autocast, dynamic_scaler
from ampdoctor.analysis.advice.measured_fixes import with_measured
from ampdoctor.analysis.backward.gradients import fp16_gradients_missing
from ampdoctor.analysis.backward.limits import LIMITS, Limits
from ampdoctor.analysis.backward.vanishing_case import lasting_case
from ampdoctor.analysis.calls.scaling import DEFAULT_SCALE, LossScaling, ScalingKind
from ampdoctor.analysis.wording import counted, scale_code, scale_text
from ampdoctor.analysis.words.range_report import expected_at_suggested, range_evidence
from ampdoctor.finding import Evidence, Finding, Fix, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.backward.scale_range import ScaleRange
    from ampdoctor.trace.run import Run

_FLUSHED = {-30: 3000, -29: 4000, -28: 2500, -26: 450, -25: 50}
_FITTING = {-12: 3000, -11: 4000, -10: 3000}


def _run(scale: float | None, factor: float, before: dict[int, int], **config: float) -> RunBuilder:
    """Six steps whose gradient enters FP16 with the exponents `before`, already scaled."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    alive = {e: n for e, n in before.items() if e >= -24} or {-24: before[-25]}
    for step in range(6):
        run.step(loss=2.3, loss_scale=scale)
        if scale is not None and step == 0:
            run.scaler("seen", enabled=True, scale=scale, backoff_factor=0.5, growth_factor=2.0, **config)
        run.call("backward", scaled="none" if scale is None else "all", factor=factor)
        run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents=before, loss_scale=scale)
        zeros = 10000 - sum(alive.values())
        for module in ("head", "body"):
            run.tensor(module, "grad_output", dtype="float16", exponents=alive, zeros=zeros, loss_scale=scale)
        if scale is not None:
            run.scaler("hold", scale=scale, scale_after=scale)
    return run


def _twin(run: RunBuilder, flushed: int, cosine: float, lost: float) -> RunBuilder:
    """Give the last step of `run` an FP32 twin, beside which so much of the gradient is flushed."""
    run.twin_step("fp32").twin(
        "run", "", "gradient", flushed=flushed, cosine=cosine, norm_ratio=cosine, energy_lost=lost
    )
    return run


class LossScaleTooSmall(Rule):
    """The loss is scaled, but by too little: gradients still vanish in FP16.

    What it means
        A GradScaler whose scale is pinned or was started low, or a factor written by hand, multiplies the loss by a
        number that leaves the gradients at FP16's lower edge (2^-24), where they are flushed to zero. There is room
        above: a larger scale would hold them.

    Why it matters
        It looks as if loss scaling were taken care of, and yet the loss flattens early as if there were none.

    How to fix
        Let the scaler find the scale: `torch.amp.GradScaler()` with its defaults starts at 65536, doubles every 2000
        steps and steps back by itself. If the scale must be fixed, take the one given in the evidence. BF16 needs none.

    Not to be mistaken for
        A scaler that is still on its way up from torch's default start. A scale that was driven down by an overflow in
        the forward pass: then the overflow is the cause. Small gradients of the first layers that are as small in FP32.
        Elements that flush while the gradient as a whole is that of FP32, as a twin step measured: that is a note.
    """

    code = "AMP102"
    name = "loss-scale-too-small"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    after = (
        "scale-collapse",
        "norm-overflow",
        "activation-overflow",
        "nan-not-precision",
        "unscaled-backward",
        "norm-overflow",
        "vanishing-gradient",
        "dead-units",
        "zero-init-deadlock",
    )
    thresholds = {name: Threshold(value, source) for name, (value, source) in LIMITS.items()}
    HEALTHY = (
        Example("gradients that fit at 65536", lambda: _run(65536.0, 1.0, _FITTING, growth_interval=2000)),
        Example("a pinned scale that fits", lambda: _run(1024.0, 1.0, _FITTING, growth_interval=10**9)),
        Example("no scaling at all: another rule's case", lambda: _run(None, 1.0, _FLUSHED)),
        Example(
            "measured: flushed, and harmless",
            lambda: _twin(_run(4.0, 1.0, _FLUSHED, growth_interval=10**9), 30, 0.9998, 4e-4),
        ),
        Example(
            "measured: all zeros are the model's own",
            lambda: _twin(_run(4.0, 1.0, _FLUSHED, growth_interval=10**9), 0, 1.0, 0.0),
        ),
    )
    SICK = (
        Example("a scale pinned at 4", lambda: _run(4.0, 1.0, _FLUSHED, growth_interval=10**9)),
        Example("a factor of 128 written by hand", lambda: _run(None, 128.0, _FLUSHED)),
        Example("a scaler started at 1", lambda: _run(1.0, 1.0, _FLUSHED, growth_interval=2000)),
        Example(
            "measured: hurt, where nothing shows",
            lambda: _twin(_run(4.0, 1.0, _FITTING, growth_interval=10**9), 18, 0.71, 0.4),
        ),
    )

    def lacks(self, run: Run) -> list[str]:
        return run.missing(self.needs) or fp16_gradients_missing(run)

    def check(self, run: Run) -> Iterator[Finding]:
        case = lasting_case(run, Limits(**{name: self.threshold(name) for name in LIMITS}))
        unscaled = {ScalingKind.NONE, ScalingKind.DISABLED}
        if case is None or case.scaling.kind in unscaled or not case.scales.has_room:
            return
        scales, scaling = case.scales, case.scaling
        text = f"The loss scale is {scale_text(scales.current)}."
        verdict = case.verdict | {"severity": _severity(scaling, scales, case.verdict["severity"])}
        yield self.finding(
            case.summary(f"with {scaling.phrase}"),
            evidence=[
                Evidence("loss_scale", scales.current, text),
                *_growth_evidence(scaling, scales),
                *case.evidence,
                *([] if case.harmless else range_evidence(scales)),
            ],
            fixes=[] if case.harmless else with_measured(run, _fixes(run, scaling, scales)),
            **verdict,
        )


def _severity(scaling: LossScaling, scales: ScaleRange, severity: Severity) -> Severity:
    """Not a fault: a scaler that still grows from torch's own start will get there."""
    growing = scaling.kind is ScalingKind.DYNAMIC and scales.current >= DEFAULT_SCALE
    return Severity.NOTE if growing else severity


def _growth_evidence(scaling: LossScaling, scales: ScaleRange) -> list[Evidence]:
    config = scaling.config
    if scaling.kind is not ScalingKind.DYNAMIC or config is None or not config.growth_interval:
        return []
    if scales.suggested is None:
        return []
    doublings = ceil(log2(max(scales.suggested / scales.current, 2.0)) / log2(config.growth_factor or 2.0))
    steps = doublings * config.growth_interval
    text = (
        f"The scale still grows, every {counted(config.growth_interval, 'step')}: "
        f"{scale_text(scales.suggested)} is {counted(steps, 'step')} away."
    )
    return [Evidence("steps_to_suggested_scale", steps, text)]


def _fixes(run: Run, scaling: LossScaling, scales: ScaleRange) -> list[Fix]:
    suggested = scales.suggested
    bf16 = bf16_autocast(run, "Gradients keep FP32's range without any scale.")
    if suggested is None:
        return [bf16]
    expected = f"{expected_at_suggested(scales)}, and from there the scale follows the gradients."
    scaler = dynamic_scaler(run, suggested, expected)
    fixes = [scaler, bf16] if scales.lost is not None else [bf16, scaler]
    if scaling.kind is ScalingKind.HAND_WRITTEN:
        code = f"SCALE = {scale_code(suggested)}\n(loss * SCALE).backward()  # and divide .grad by SCALE as before"
        larger = scale_text(suggested / scales.current)
        expected = f"The factor is {larger} times as large as now; still nothing checks for infinities."
        fixes.append(Fix("Keep the hand-written factor, but make it larger", code, expected))
    return fixes
