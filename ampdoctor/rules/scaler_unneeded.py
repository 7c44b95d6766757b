"""The rule scaler-unneeded."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment, device_type, line_of
from ampdoctor.analysis.half_used import half_dtypes, may_use_fp16
from ampdoctor.analysis.wording import counted, scale_text
from ampdoctor.finding import Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import FP32
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import ScalerRow

_NOT_FOR_BF16 = re.compile(r"not implemented for '?BFloat16", re.IGNORECASE)


def _run(dtype: str = "bfloat16", *, top: int = 20, enabled: bool = True, skips: bool = False) -> RunBuilder:
    """Steps in `dtype` whose scale doubles up to 2^`top`."""
    run = RunBuilder()
    for step in range(4):
        scale = 2.0 ** (top - 3 + step)
        run.step(loss=2.0).tensor("head", "activation", dtype=dtype, exponents={0: 100})
        if step == 0:
            run.scaler("seen", enabled=enabled, scale=scale, growth_interval=2000)
        if enabled:
            run.call("scaler_step", target="optimizer0", file="train.py", line=9)
            run.scaler("skip" if skips else "step", scale=scale, found_inf=skips)
            run.scaler("backoff" if skips else "growth", scale=scale, scale_after=2 * scale)
    return run


def _refused() -> RunBuilder:
    error = "NotImplementedError: \"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'"
    run = RunBuilder(exception=error, exit_code=1).step(loss=1.0)
    run.tensor("head", "activation", dtype="bfloat16", exponents={0: 100})
    run.scaler("seen", enabled=True, scale=65536.0)
    return run.call("scaler_step", target="optimizer0", error=error)


class ScalerUnneeded(Rule):
    """A GradScaler is in use although nothing is computed in FP16.

    What it means
        Loss scaling lifts gradients over the lower edge of FP16. BF16 and FP32 reach down to 2^-126 and beyond:
        nothing is flushed that a scale could save. With nothing to stop it, the scale doubles every growth interval.

    Why it matters
        Once the scale comes near 2^127, gradients times the scale pass the end of FP32, and healthy steps are skipped,
        first one in many, then more. Where gradients are held in BF16, CUDA's scaler raises
        "not implemented for 'BFloat16'" at once.

    How to fix
        Leave the scaler out, or switch it on for FP16 alone: `GradScaler(enabled=dtype is torch.float16)`.

    Not to be mistaken for
        FP16 in a part of the model, in a communication hook or in a single operation: there a scale is of use. FP16
        that was meant and is not there because autocast is not active.
    """

    code = "AMP109"
    name = "scaler-unneeded"
    severity = Severity.WARNING
    needs = ("scaler.enabled", "tensors")
    after = ("autocast-not-active",)
    thresholds = {
        "runaway_scale": Threshold(
            2.0**40, "FP16 holds 40 binades: no gradient that it could hold needs a larger scale"
        )
    }
    HEALTHY = (
        Example("FP16", lambda: _run("float16")),
        Example("BF16, with the scaler switched off", lambda: _run(enabled=False)),
        Example(
            "one operation in FP16", lambda: _run("float32").twin_step(kind="local").op("aten.mm", dtype_out="float16")
        ),
    )
    SICK = (
        Example("BF16", _run),
        Example("FP32", lambda: _run("float32")),
        Example("BF16, and steps are skipped", lambda: _run(top=127, skips=True)),
        Example("BF16 gradients, which CUDA's scaler refuses", _refused),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        seen = next((r for r in run.scaler if r.event == "seen" and r.enabled), None)
        computed = run.tensors("activation", "grad_output", "weight_grad")
        if seen is None or not computed or may_use_fp16(run):
            return
        title = "BF16" if "bfloat16" in half_dtypes(run) else "FP32"
        rows = [r for r in run.scaler if r.scale is not None]
        scales = [s for r in rows for s in (r.scale, r.scale_after) if s is not None]
        skipped = self._by_the_scale(run, rows)
        error = next((c.error for c in run.calls if c.error and _NOT_FOR_BF16.search(c.error)), None)
        if error is None and _NOT_FOR_BF16.search(run.info.exception or ""):
            error = run.info.exception
        evidence = [
            Evidence("fp16_tensors", 0, f"0 of {len(computed)} recorded tensors are in FP16; the run is in {title}."),
            *_scale_evidence(scales),
        ]  # fmt: skip
        what = ""
        if skipped:
            what = f", and its scale has grown until {counted(len(skipped), 'healthy step')} were skipped"
            text = (
                f"{counted(len(skipped), 'step')} with a finite loss, the first at a scale of "
                f"{scale_text(skipped[0].scale or 0.0)}, were skipped: the scaled gradients pass FP32's {FP32.max:.3g}."
            )
            evidence.append(Evidence("healthy_steps_skipped", len(skipped), text))
        if error is not None:
            what = ", and it refuses BF16 gradients"
            evidence.append(Evidence("error", error, f"The scaler raised `{error[:160]}`."))
        first = skipped[0].step if skipped else seen.step
        yield self.finding(
            f"A GradScaler is in use with {title}, which needs no loss scaling{what}.",
            evidence=evidence,
            fixes=_fixes(run, title),
            location=Location(
                (),
                seen.step,
                max(first, rows[-1].step if rows else seen.step),
                source=line_of(run, "scaler_step", "scale"),
            ),
            severity=Severity.ERROR if error is not None else None,
        )

    def _by_the_scale(self, run: Run, rows: Sequence[ScalerRow]) -> list[ScalerRow]:
        """Return the skips that the scale alone has made: it is beyond any use, and the loss was finite."""
        finite = {s.step for s in run.steps if s.loss is None or math.isfinite(s.loss)}
        large = self.threshold("runaway_scale")
        return [r for r in rows if r.event == "skip" and (r.scale or 0.0) >= large and r.step in finite]


def _scale_evidence(scales: Sequence[float]) -> list[Evidence]:
    if not scales:
        return []
    most = f"at most {scale_text(max(scales))}"
    text = f"The loss scale went from {scale_text(scales[0])} to {scale_text(scales[-1])}, {most}."
    return [Evidence("largest_scale", max(scales), text)]


def _fixes(run: Run, title: str) -> list[Fix]:
    where = comment(line_of(run, "scaler_step"))
    plain = f"""\
loss.backward(){comment(line_of(run, "backward"))}
optimizer.step(){where}"""
    switch = f'scaler = torch.amp.GradScaler("{device_type(run)}", enabled=dtype is torch.float16)'
    return [
        Fix("Leave the scaler out", plain, f"No step is skipped for a scale that {title} has no use for."),
        Fix(
            "Switch it on for FP16 alone",
            switch,
            "A disabled scaler passes everything through, so that the loop can stay as it is.",
        ),
    ]
