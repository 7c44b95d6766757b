"""The rule eps-underflow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import bf16_autocast
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


def _run(guard: str = "clamp_min", *, loss: float = math.nan, backward: bool = False, **columns: Any) -> RunBuilder:
    """Three steps of a normalisation whose guard is what `columns` says; the NaN may come in the backward pass only."""
    run = RunBuilder(device="cpu")
    lost = {"constant": 1e-12, "flushed": 4}
    for _ in range(3):
        run.step(loss=2.3 if backward else loss, loss_scale=65536.0, found_inf=True, applied=False)
        run.twin_step(kind="local").op("aten.mm", "head", seq=1, inputs_from=[-1])
        run.op("aten.linalg_vector_norm", seq=2, inputs_from=[1])
        run.op(f"aten.{guard}", seq=3, inputs_from=[2], **(lost | columns))
        born: dict[str, Any] = {"born": 12, "born_fp32": 12, "first_born": 4, "file": "model.py", "line": 8}
        direction = "backward" if backward else "forward"
        run.op("aten.div", seq=4, inputs_from=[1, 3], direction=direction, **born)
    return run


class EpsUnderflow(Rule):
    """An epsilon is zero in FP16, and what it should guard divides by zero.

    What it means
        FP16 has nothing between 0 and 6e-8, and makes 0 of all up to 3e-8: 1e-8 and 1e-12, the usual epsilons, are
        gone. Where a vector, a variance or a root is 0 (padding, a constant channel, two equal points), 0 / 0 is NaN,
        and the derivative of the root is infinite, even where the forward pass is finite.

    Why it matters
        One padded row is enough for a NaN loss or NaN gradients: every step is skipped, or the weights are lost.

    How to fix
        Use an epsilon that FP16 has: 1e-4 or more (`torch.finfo(torch.float16).tiny` is 6e-5), or compute the
        normalisation in FP32. BF16 holds 1e-12, so it is a cure as well.

    Not to be mistaken for
        A division by zero that nothing guards: it fails in FP32 too (nan-not-precision). A logarithm of a probability
        (log-of-zero-underflow). Adam's epsilon (adam-eps-underflow).
    """

    code = "AMP208"
    name = "eps-underflow"
    severity = Severity.ERROR
    needs = ("steps", "ops.inputs_from")
    thresholds = {"steps_error": Threshold(*LASTING)}
    HEALTHY = (
        Example("an epsilon that FP16 has", lambda: _run(constant=None, flushed=0)),
        Example("nothing was near it", lambda: _run(flushed=0)),
    )
    SICK = (
        Example("F.normalize of padding", _run),
        Example("gradients only", lambda: _run("add", backward=True, constant=1e-8)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found = causes_of(run, Kind.EPS)
        if not found or (guard := found[0].other) is None or guard.constant is None:
            return
        row, half = found[0].birth.row, format_name(guard)
        where = "its derivative" if row.direction == "backward" else f"`{op_name(row)}`"
        yield self.finding(
            f"An epsilon of {guard.constant:g} is 0 in {half} {at(guard)}: nothing keeps {where} from dividing by "
            f"zero, and {harm(found)}.",
            evidence=[*_lost(guard, half), *cause_evidence(run, found)],
            fixes=_fixes(run, found, guard),
            location=cause_location(found, "gradient" if row.direction == "backward" else "activation"),
            grade=Grade.MEASURED,
            severity=cause_severity(run, found, self.threshold("steps_error")),
        )  # fmt: skip


def _lost(guard: OpRow, half: str) -> list[Evidence]:
    return [
        Evidence(
            "epsilon",
            guard.constant or 0.0,
            f"`{op_name(guard)}` {at(guard)} is given {guard.constant:g}.",
        ),
        Evidence(
            "flushed_elements", guard.flushed,
            f"{guard.flushed} of {guard.numel} of its results are 0 in {half}, and not in FP32: all that they were to "
            "be is that epsilon.", Grade.MEASURED,
        ),
    ]  # fmt: skip


_USUAL = {
    "clamp_min": "x / x.norm(dim=-1, keepdim=True).clamp_min(1e-4)",
    "add": "y = x / torch.sqrt(v + 1e-4)",
    "maximum": "x / torch.maximum(n, n.new_tensor(1e-4))",
}


def _fixes(run: Run, found: list[Cause], guard: OpRow) -> list[Fix]:
    line = comment_of(guard)
    code = _USUAL.get(op_name(guard), "eps = 1e-4")
    return [
        Fix(
            "Use an epsilon that FP16 has",
            f"{code}{line}: instead of {guard.constant:g}" if line else f"{code}  # instead of {guard.constant:g}",
            "1e-4 is above FP16's smallest normal number, 6e-5, and 1 / 1e-4 is within its range.",
        ),
        Fix(
            "Normalise in FP32",
            f"y = normalise(x.float()).to(x.dtype){line}",
            f"FP32 holds {guard.constant:g} as it is.",
        ),
        tried_on(run, found, "bf16", bf16_autocast(run, f"BF16 holds {guard.constant:g} as FP32 does.")),
    ]
