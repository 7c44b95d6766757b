"""The rule loss-overflow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import bf16_autocast, device_type
from ampdoctor.analysis.forward.birth_causes import Kind, causes_of
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
from ampdoctor.finding import Finding, Fix, Grade, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.forward.birth_causes import Cause
    from ampdoctor.trace.run import Run


def _run(loss: float = math.nan, *, output: int = 0, then: str = "", step: str = "sum", **total: Any) -> RunBuilder:
    """Three steps of a model with a Dice loss, whose sum is what `total` says; `output` of the model is infinite."""
    run = RunBuilder(device="cpu")
    born = {"born": 1, "overflowed": 1, "first_born": 3, "absmax": 9e4, "numel": 1}
    for _ in range(3):
        lost = math.isnan(loss)
        run.step(loss=loss, loss_scale=65536.0, found_inf=lost, applied=not lost)
        run.module("head").tensor("head", "activation", dtype="float16", exponents={1: 90}, posinf=output)
        run.twin_step(kind="local").op("aten.convolution", "head", seq=1, inputs_from=[-1])
        run.op("aten.sigmoid", seq=2, inputs_from=[1])
        run.op(f"aten.{step}", seq=3, inputs_from=[2], file="dice.py", line=3, **(born | total))
        run.op("aten.div", seq=4, inputs_from=[3, 3], numel=1)
        if then:
            run.op(then, seq=5, inputs_from=[4, 2])
    return run


class LossOverflow(Rule):
    """The loss overflows FP16 although the network is healthy: a sum, power or exponential in it passes 65504.

    What it means
        All that the network hands on is finite. The loss is computed from it in FP16, and one of its steps passes
        65504: a sum over more elements than that, the square of an error above 255, exp of more than 11.

    Why it matters
        The loss is infinite or NaN, every step is skipped or the weights are lost, and the search for the cause goes
        to the network, where there is none.

    How to fix
        Compute the loss on `.float()` tensors, outside of autocast. It costs nothing beside the network. BF16 helps
        against the overflow, but a loss in 8 bits is coarse.

    Not to be mistaken for
        An activation of the network that overflows (activation-overflow), of which the loss is a victim. A loss that
        diverges in FP32 too (nan-not-precision).
    """

    code = "AMP205"
    name = "loss-overflow"
    severity = Severity.ERROR
    needs = ("steps", "ops.inputs_from")
    after = ("scaler-bypassed", "optimizer-stepped-twice", "gradient-penalty-scaled")
    thresholds = {"steps_error": Threshold(*LASTING)}
    HEALTHY = (
        Example("a sum that fits", lambda: _run(0.3, born=0, overflowed=0, first_born=None, absmax=9e3)),
        Example("the network's output is infinite", lambda: _run(output=5)),
        Example("what overflows goes on through the network", lambda: _run(then="aten.addmm")),
        Example("FP32 overflows as well", lambda: _run(born_fp32=1, overflowed=0)),
    )  # fmt: skip
    SICK = (
        Example("the sum of a Dice loss", _run),
        Example("the square of a large error", lambda: _run(math.inf, step="pow")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found = causes_of(run, Kind.LOSS)
        if not found:
            return
        row = found[0].birth.row
        yield self.finding(
            f"The loss overflows FP16 {at(row)}: its `{op_name(row)}` passes 65504 although all that the network hands "
            f"on is finite, and {harm(found)}.",
            evidence=cause_evidence(run, found),
            fixes=_fixes(run, found),
            location=cause_location(found, "loss"),
            grade=Grade.MEASURED,
            severity=cause_severity(run, found, self.threshold("steps_error")),
        )  # fmt: skip


def _fixes(run: Run, found: list[Cause]) -> list[Fix]:
    row = found[0].birth.row
    code = f"""\
with torch.autocast("{device_type(run)}", enabled=False):
    loss = criterion(output.float(), target){comment_of(row)}"""
    return [
        Fix("Compute the loss in FP32", code, "FP32 holds sums up to 3e38."),
        Fix(
            "Average before you add up",
            "loss = (error / error.numel()).sum()  # instead of a sum that is divided later",
            "What is added up stays of the size of one element.",
        ),
        tried_on(run, found, "bf16", bf16_autocast(run, "BF16 has FP32's range, but 8 bits for the loss.")),
    ]
