"""The rule log-of-zero-underflow."""

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
    format_name,
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


def _run(probability: str = "_softmax", *, loss: float = math.inf, born: int = 40, **columns: Any) -> RunBuilder:
    """Three steps of a loss that takes the log of probabilities, which are what `columns` says."""
    run = RunBuilder(device="cpu")
    flushed = {"flushed": 40, "energy_lost": 1e-12}
    for _ in range(3):
        lost = not math.isfinite(loss)
        run.step(loss=loss, loss_scale=65536.0, found_inf=lost, applied=not lost)
        run.twin_step(kind="local").op("aten.addmm", "head", seq=1, inputs_from=[-1])
        run.op(f"aten.{probability}", seq=2, inputs_from=[1], **(flushed | columns))
        first = 3 if born else None
        run.op(
            "aten.log", seq=3, inputs_from=[2], file="train.py", line=30, born=born, born_fp32=born, first_born=first
        )
    return run  # fmt: skip


class LogOfZeroUnderflow(Rule):
    """A probability is rounded to 0 or 1 in half precision, and its logarithm is infinite.

    What it means
        A softmax or sigmoid in FP16 has nothing between 0 and 6e-8, so that a logit 17 below the largest one has
        probability 0, and nothing between 0.9995 and 1, so that 1 - p is 0 from a logit of 8 on. FP32 gets there at 104
        and 17. The logarithm of 0 is -inf, and 0 times that is NaN.

    Why it matters
        The loss is infinite, or NaN, as soon as the model is confident: the better it learns, the surer it breaks.

    How to fix
        Take both together, from the logits: `F.cross_entropy`, `F.log_softmax`, `F.logsigmoid`,
        `F.binary_cross_entropy_with_logits`. They never form the probability. An epsilon inside the log must be one
        that the format has: 1e-8 is 0 in FP16. BF16 keeps small probabilities, but rounds to 1 even sooner.

    Not to be mistaken for
        Underflow of gradients, which a loss scale mends: this is the forward pass. A probability that is 0 in FP32 too,
        as that of a masked class.
    """

    code = "AMP207"
    name = "log-of-zero-underflow"
    severity = Severity.ERROR
    needs = ("steps", "ops.inputs_from")
    thresholds = {"steps_error": Threshold(*LASTING)}
    HEALTHY = (
        Example("probabilities that half holds", lambda: _run(loss=2.3, born=0, flushed=0)),
        Example("zero in FP32 as well: masked classes", lambda: _run(nonzero=60, flushed=0)),
        Example("the log of something else", lambda: _run("relu")),
        Example("an infinity that harms nobody", lambda: _run(loss=2.3)),
    )
    SICK = (
        Example("softmax, then log", _run),
        Example("1 - sigmoid", lambda: _run("sigmoid", flushed=0, absmax=0.99992)),
        Example("in BF16", lambda: _run(dtype_in="bfloat16", dtype_out="bfloat16")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found = causes_of(run, Kind.LOG)
        if not found or (other := found[0].other) is None:
            return
        row = found[0].birth.row
        to_zero = other.flushed > 0
        value = "0" if to_zero else "1"
        yield self.finding(
            f"A logarithm of zero {at(row)}: `{op_name(other)}` rounds probabilities to {value} in "
            f"{format_name(other)}, `{op_name(row)}` of what is left is infinite, and {harm(found)}.",
            evidence=[_rounded(other), *cause_evidence(run, found)],
            fixes=_fixes(run, found, other),
            location=cause_location(found, "loss" if not row.module else "activation"),
            grade=Grade.MEASURED,
            severity=cause_severity(run, found, self.threshold("steps_error")),
        )  # fmt: skip


def _rounded(other: OpRow) -> Evidence:
    half = format_name(other)
    if other.flushed:
        text = (
            f"{other.flushed} of {other.numel} results of `{op_name(other)}` {at(other)} are 0 in {half}, and above 0 "
            "in FP32."
        )  # fmt: skip
        return Evidence("flushed_elements", other.flushed, text, Grade.MEASURED)
    away = max(1.0 - other.absmax, 0.0)
    text = f"The largest result of `{op_name(other)}` {at(other)} is {away:.3g} below 1 in FP32; {half} makes 1 of it."
    return Evidence("below_one", away, text, Grade.MEASURED)


def _fixes(run: Run, found: list[Cause], other: OpRow) -> list[Fix]:
    line = comment_of(found[0].birth.row)
    binary = op_name(other) in {"sigmoid", "tanh"}
    fused = (
        f"loss = F.binary_cross_entropy_with_logits(logits, target){line}"
        if binary
        else f"log_p = F.log_softmax(logits.float(), dim=-1){line}; or F.cross_entropy(logits, target)"
        if line
        else "log_p = F.log_softmax(logits.float(), dim=-1)"
    )
    log_sigmoid = "log_p, log_not_p = F.logsigmoid(logits), F.logsigmoid(-logits)"
    fixes = [
        Fix(
            f"Take {'sigmoid' if binary else 'softmax'} and log in one, from the logits",
            f"{fused}\n# or {log_sigmoid}" if binary else fused,
            "The probability itself is never formed, so that none is rounded to 0 or 1.",
        ),
        Fix(
            "Compute the loss in FP32",
            f"""\
with torch.autocast("{device_type(run)}", enabled=False):
    p = torch.{op_name(other)}(logits.float(){"" if binary else ", -1"}){line}""",
            "FP32 holds probabilities down to 1e-45; only logits beyond 104 (17 for 1 - p) still break it.",
        ),
    ]
    bf16 = bf16_autocast(run, "BF16 keeps small probabilities, but rounds to 1 even sooner.")
    measured = tried_on(run, found, "bf16", bf16)
    return [*fixes, measured] if measured is not bf16 else fixes
