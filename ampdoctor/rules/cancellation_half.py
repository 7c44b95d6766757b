"""The rule cancellation-half."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.backward.limits import LIMITS
from ampdoctor.analysis.forward.birth_causes import Kind, causes_of
from ampdoctor.analysis.forward.cancelled import Coarse, coarse_differences
from ampdoctor.analysis.wording import percent
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
)
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import OpRow


def _run(
    *, loss: float = math.nan, born: int = 11, root: str = "sqrt", cosine: float | None = None, **difference: Any
) -> RunBuilder:
    """A step whose variance is E[x^2] - E[x]^2, a difference that is what `difference` says."""
    half: dict[str, Any] = {"dtype_in": "bfloat16", "dtype_out": "bfloat16"}
    run = RunBuilder(device="cpu").step(loss=loss, applied=True)
    run.twin_step(kind="local" if cosine is None else "carried")
    if cosine is not None:
        run.twin("run", "", "gradient", cosine=cosine)
    run.op("aten.mean", seq=1, inputs_from=[-1], absmax=900.0, **half)
    run.op("aten.mul", seq=2, inputs_from=[-1], absmax=901.0, **half)
    place: dict[str, Any] = {"file": "model.py", "line": 22}
    run.op("aten.sub", seq=3, inputs_from=[1, 2], numel=64, **({"cancelled": 29} | half | place | difference))
    run.op("aten.add", seq=4, inputs_from=[3], numel=64, **half)
    first = 5 if born else None
    run.op(f"aten.{root}", seq=5, inputs_from=[4], numel=64, born=born, born_fp32=born, first_born=first, **half)
    return run.step(loss=loss, examined=False)  # fmt: skip


def _silent(cosine: float) -> RunBuilder:
    """A variance that is kept from being negative, and is noise."""
    return _run(loss=2.3, born=0, cancelled=60, cosine=cosine)


class CancellationHalf(Rule):
    """A difference of nearly equal half-precision numbers has no digits left: it is noise, or negative under a root.

    What it means
        E[x²] - E[x]² is small where the mean is large beside the spread. Both terms are rounded to 8 bits in BF16, 11
        in FP16, before they are subtracted: what is left is the rounding, of either sign. The root or the logarithm of
        a negative number is NaN, and a division by such a difference is anything.

    Why it matters
        The loss is NaN in BF16 and FP16 alike, and looks like a matter of range, which it is not: **BF16 is no cure**,
        it has fewer digits still. Where a clamp hides the sign, the result is silently wrong.

    How to fix
        Subtract before you square: `(x - x.mean()).square().mean()` (two passes), or compute the statistics in FP32.
        torch's own `var`, `layer_norm` and `batch_norm` do both.

    Not to be mistaken for
        An overflow, or an epsilon that FP16 makes zero. A negative variance in FP32 as well.
    """

    code = "AMP209"
    name = "cancellation-half"
    severity = Severity.ERROR
    needs = ("steps", "ops.inputs_from")
    thresholds = {"steps_error": Threshold(*LASTING), "wrong_warning": Threshold(*LIMITS["wrong_warning"])}
    HEALTHY = (
        Example("a difference with digits", lambda: _run(loss=2.3, born=0, cancelled=0)),
        Example("NaN of numbers that were negative anyhow", lambda: _run(cancelled=2)),
        Example("noise that changes no gradient", lambda: _silent(0.9999)),
    )
    SICK = (
        Example("the root of a negative variance", _run),
        Example("its logarithm", lambda: _run(root="log")),
        Example("a variance that is noise", lambda: _silent(0.5)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found = causes_of(run, Kind.CANCELLATION)
        if found and (difference := found[0].other) is not None:
            row, half = found[0].birth.row, format_name(difference)
            yield self.finding(
                f"A difference of nearly equal {half} numbers cancels {at(difference)}: what is left is rounding, "
                f"negative or zero, `{op_name(row)}` makes NaN or infinities of it, and {harm(found)}.",
                evidence=[_cancelled(difference), *cause_evidence(run, found)],
                fixes=_fixes(difference),
                location=cause_location(found),
                grade=Grade.MEASURED,
                severity=cause_severity(run, found, self.threshold("steps_error")),
            )  # fmt: skip
            return
        coarse = [c for c in coarse_differences(run) if c.wrong >= self.threshold("wrong_warning")]
        if coarse:
            yield self._coarse(coarse)

    def _coarse(self, coarse: list[Coarse]) -> Finding:
        worst, half = coarse[0], format_name(coarse[0].difference)
        row = worst.difference
        text = f"{percent(min(worst.wrong, 1.0))} of the energy of the weight gradients is wrong, compared with FP32's."
        return self.finding(
            f"A difference of nearly equal {half} numbers cancels {at(row)}: what is left is rounding, and "
            f"`{op_name(worst.use)}` goes on with it.",
            evidence=[
                _cancelled(row),
                Evidence("gradient_wrong", worst.wrong, text, Grade.MEASURED),
            ],
            fixes=_fixes(row),
            location=Location(
                (f"{row.module or row.op} (activation)",), row.step, coarse[-1].difference.step,
                source=f"{row.file}:{row.line}" if row.file else None,
            ),
            grade=Grade.MEASURED,
            severity=Severity.WARNING,
        )  # fmt: skip


def _cancelled(row: OpRow) -> Evidence:
    text = (
        f"Of {row.cancelled} of {row.numel} results of `{op_name(row)}` {at(row)}, under two bits are left by the "
        f"rounding of what went in."
    )
    return Evidence("cancelled_elements", row.cancelled or 0, text, Grade.MEASURED)


def _fixes(row: OpRow) -> list[Fix]:
    line = comment_of(row)
    two_passes = f"""\
mean = x.mean(-1, keepdim=True){line}
var = (x - mean).square().mean(-1, keepdim=True)  # never negative"""
    return [
        Fix(
            "Compute the difference in FP32",
            f"x = x.float(){line}, before anything is squared or averaged" if line else "x = x.float()",
            "FP32 keeps 24 bits, 13 more than FP16 and 16 more than BF16. BF16 is no cure here.",
        ),
        Fix(
            "Subtract before you square (two passes)",
            two_passes,
            "What is squared is small itself, so that nothing cancels.",
        ),
        Fix(
            "Use torch's own statistics",
            "var, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)",
            "It takes two passes, in FP32 inside.",
        ),
    ]
