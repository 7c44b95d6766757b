"""The rule norm-overflow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import bf16_autocast
from ampdoctor.analysis.backward.limits import LIMITS
from ampdoctor.analysis.forward.birth_causes import Kind, causes_of
from ampdoctor.analysis.twins.measured import measured_steps
from ampdoctor.analysis.wording import percent
from ampdoctor.analysis.words.birth_report import (
    LASTING,
    at,
    cause_evidence,
    cause_location,
    cause_severity,
    comment_of,
    harm,
    op_name,
    tried_on,
)
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.forward.birth_causes import Cause
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow


def _run(
    *, loss: float = 1.4, cosine: float | None = 0.2, also_into: str = "", root: str = "rsqrt", **square: Any
) -> RunBuilder:
    """Three steps of a norm written by hand, whose squares are what `square` says."""
    run = RunBuilder(device="cpu")
    born = {"born": 60, "overflowed": 60, "first_born": 2, "absmax": 2e6}
    for _ in range(3):
        run.step(loss=loss, loss_scale=1024.0, found_inf=math.isnan(loss))
        run.twin_step("fp32").twin("run", "", "gradient", cosine=cosine)
        run.op("aten.addmm", "up", seq=1, inputs_from=[-1])
        run.op("aten.pow", "norm", seq=2, inputs_from=[1], file="m.py", line=9, **(born | square))
        run.op("aten.mean", "norm", seq=3, inputs_from=[2], numel=10)
        run.op("aten.add", "norm", seq=4, inputs_from=[3], numel=10)
        run.op(f"aten.{root}", "norm", seq=5, inputs_from=[4], numel=10)
        run.op("aten.mul" if root == "rsqrt" else "aten.div", "norm", seq=6, inputs_from=[1, 5])
        run.op("aten.addmm", "down", seq=7, inputs_from=[-1, 6])
        if also_into:
            run.op(also_into, "down", seq=8, inputs_from=[-1, 2])
    return run


class NormOverflow(Rule):
    """A hand-written norm overflows: its squares pass FP16's 65504, and it hands on zeros without a word.

    What it means
        The mean of squares in a norm (RMSNorm, LayerNorm, GroupNorm, a vector's length) is infinite as soon as a value
        passes 255, for 256 squared is 65536. One over the root of infinity is 0: the layer's output is exactly zero
        for all that was normalised with it, and so are the gradients of what comes before it.

    Why it matters
        Nothing is NaN, no step is skipped, and the loss goes on as if the layers before the norm were not there. It
        looks like gradients that underflow, but a larger loss scale changes nothing.

    How to fix
        Compute the statistics in FP32, `x.float()`, or use torch's own norm (`F.rms_norm`, `F.layer_norm`,
        `F.normalize` of `x.float()`), which does. BF16 holds the squares as well.

    Not to be mistaken for
        Underflow of gradients: there the zeros begin in the backward pass. An activation that overflows by itself, and
        is normalised afterwards (activation-overflow). A loss that divides by a sum (loss-overflow).
    """

    code = "AMP204"
    name = "norm-overflow"
    severity = Severity.ERROR
    needs = ("steps", "ops.inputs_from")
    after = ("scaler-bypassed", "optimizer-stepped-twice", "gradient-penalty-scaled")
    thresholds = {"steps_error": Threshold(*LASTING), "wrong_error": Threshold(*LIMITS["wrong_error"])}
    HEALTHY = (
        Example("squares that fit", lambda: _run(born=0, overflowed=0, first_born=None, absmax=9e3)),
        Example("a square that is an activation", lambda: _run(loss=math.nan, also_into="aten.addmm")),
        Example("FP32 overflows as well", lambda: _run(born_fp32=60, overflowed=0)),
    )  # fmt: skip
    SICK = (
        Example("zeros, and nobody is told", _run),
        Example("with a division by the root", lambda: _run(root="sqrt", loss=math.nan, cosine=None)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found = causes_of(run, Kind.NORM)
        if not found:
            return
        row, told = found[0].birth.row, harm(found)
        wrong = _wrong(run, found)
        evidence = cause_evidence(run, found)
        if wrong is not None:
            text = (
                f"{percent(min(wrong, 1.0))} of the energy of the weight gradients is wrong or missing, compared with "
                "FP32's."
            )
            evidence.insert(1, Evidence("gradient_wrong", wrong, text, Grade.MEASURED))
        if dead := _dead(found):
            text = (
                f"All {dead.numel} results of `{op_name(dead)}` {at(dead)} are zero: nothing of what came in goes on."
            )
            evidence.insert(1, Evidence("zeros_handed_on", dead.numel, text, Grade.MEASURED))
        outcome = f"and {told}" if told else "and nothing else shows it"
        yield self.finding(
            f"A norm overflows FP16 {at(row)}: its `{op_name(row)}` passes 65504 and becomes infinite, "
            f"{'all that' if dead else 'what'} is divided by it becomes zero, {outcome}.",
            evidence=evidence,
            fixes=_fixes(run, found),
            location=cause_location(found),
            grade=Grade.MEASURED,
            severity=self._severity(run, found, wrong),
        )  # fmt: skip

    def _severity(self, run: Run, found: list[Cause], wrong: float | None) -> Severity:
        if _dead(found) or (wrong is not None and wrong >= self.threshold("wrong_error")):
            return Severity.ERROR
        return cause_severity(run, found, self.threshold("steps_error"))


def _dead(found: list[Cause]) -> OpRow | None:
    """Return what divides by the norm, where all that it hands on is zero on each of these steps."""
    norms = [c.other for c in found if c.other is not None and not c.other.nonzero]
    return norms[0] if len(norms) == len(found) else None


def _wrong(run: Run, found: list[Cause]) -> float | None:
    """Return how wrong the gradient is on the worst of these steps, where it was measured."""
    steps = {c.step for c in found}
    shares = [s.run.wrong for s in measured_steps(run) if s.step in steps and s.run is not None]
    return max((w for w in shares if w is not None), default=None)


def _fixes(run: Run, found: list[Cause]) -> list[Fix]:
    line = comment_of(found[0].birth.row)
    code = f"""\
v = x.float(){line}
y = (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)"""
    return [
        Fix("Compute the norm's statistics in FP32", code, "FP32 holds squares up to 3e38."),
        Fix(
            "Use torch's norm",
            f"y = F.rms_norm(x, x.shape[-1:], weight, eps){line}",
            "It keeps its sums in FP32 whatever the input is.",
        ),
        tried_on(run, found, "bf16", bf16_autocast(run, "BF16 has FP32's range: its squares fit.")),
    ]
