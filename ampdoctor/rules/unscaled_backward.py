"""The rule unscaled-backward."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.scaled_steps import ScaledStep, scaled_steps
from ampdoctor.analysis.wording import counted, percent, scale_text
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


def _run(*backwards: str, reaches: str = "optimizer0", scale: float = 4096.0, factor: float = 1.0) -> RunBuilder:
    """Three steps with one backward pass of each kind in `backwards`; the unscaled ones reach `reaches`."""
    run = RunBuilder()
    for _ in range(3):
        run.step(loss=2.0, loss_scale=scale).call("zero_grad", target="optimizer0")
        for line, scaled in enumerate(backwards, 40):
            reached = [reaches if scaled == "none" else "optimizer0"]
            run.call("backward", scaled=scaled, factor=factor, optimizers=reached, file="train.py", line=line)
        if reaches != "optimizer0":
            run.call("optimizer_step", target=reaches)
        run.call("scaler_step", target="optimizer0").scaler("step", optimizer="optimizer0", scale=scale)
        run.call("update", target="scaler0")
    return run


class UnscaledBackward(Rule):
    """A loss bypasses `scaler.scale()`: its gradients are divided by a scale that never multiplied them.

    What it means
        `scaler.step` divides the gradients of its optimizer by the loss scale. A `backward()` on a loss that did not
        go through `scaler.scale()` adds gradients that lack the factor, so what it teaches is made smaller by the
        scale, thousands of times. They also get no protection against underflow in FP16.

    Why it matters
        One head, or the whole model, does not learn, while the other losses look fine. Adam hides it in part, because
        it divides by the gradient's size: then only the balance between the losses is wrong.

    How to fix
        Pass every loss that reaches this optimizer through the scaler: `scaler.scale(loss).backward()`.

    Not to be mistaken for
        A second optimizer that is stepped without the scaler. A backward pass whose gradients are cleared before the
        step. A loss that the code multiplies by `scaler.get_scale()` itself.
    """

    code = "AMP401"
    name = "unscaled-backward"
    severity = Severity.ERROR
    needs = ("steps", "calls")
    thresholds = {"factor_tolerance": Threshold(0.01, "a factor within 1 % of the scale is the scale, written by hand")}
    HEALTHY = (
        Example("every loss scaled", lambda: _run("all", "all")),
        Example("another optimizer, without scaler", lambda: _run("all", "none", reaches="optimizer1")),
        Example("scaled by hand with the same factor", lambda: _run("none", factor=4096.0)),
        Example("a scale of 1", lambda: _run("none", scale=1.0)),
    )
    SICK = (
        Example("an auxiliary loss", lambda: _run("all", "none")),
        Example("the only loss", lambda: _run("none")),
        Example("one term of a sum", lambda: _run("some")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        steps = scaled_steps(run)
        wrong: dict[tuple[str | None, int | None], list[tuple[ScaledStep, CallRow]]] = {}
        for step in steps:
            for call in step.backwards:
                if self._bypasses(step, call):
                    wrong.setdefault((call.file, call.line), []).append((step, call))
        for cases in wrong.values():
            yield self._finding(cases, len(steps))

    def _bypasses(self, step: ScaledStep, call: CallRow) -> bool:
        if call.scaled not in {"none", "some"} or step.scale == 1.0:
            return False
        by_hand = math.isclose(call.factor or 1.0, step.scale, rel_tol=self.threshold("factor_tolerance"))
        return not by_hand

    def _finding(self, cases: list[tuple[ScaledStep, CallRow]], total: int) -> Finding:
        step, call = cases[0]
        source = source_of(call)
        line = f"  # {source}" if source else ""
        part = "a part of this loss" if call.scaled == "some" else "this loss"
        others = len(step.backwards) - 1
        share = len({case.step for case, _ in cases}) / total
        evidence = [
            Evidence(
                "loss_scale", step.scale,
                f"scaler.step({step.optimizer}) divides its gradients by {scale_text(step.scale)}, but {part} was "
                "never multiplied by it.",
            ),
            Evidence("steps_share", share, f"So it is on {percent(share)} of the steps with the scaler."),
            Evidence(
                "other_backward_passes", others,
                f"{counted(others, 'other backward pass', 'other backward passes')} of that step "
                f"{'reaches' if others == 1 else 'reach'} the same optimizer.",
            ),
        ]  # fmt: skip
        loss = "loss_a + loss_b" if call.scaled == "some" else "loss"
        return self.finding(
            f"A loss bypasses scaler.scale(): its gradients end up {scale_text(step.scale)} times too small.",
            evidence=evidence,
            fixes=[
                Fix(
                    "Scale every loss of this optimizer", f"scaler.scale({loss}).backward(){line}",
                    f"Its gradients grow by a factor of {scale_text(step.scale)}, to their right size.",
                    Grade.OBSERVED,
                )
            ],
            location=Location((), step.step, cases[-1][0].step, source=source),
        )  # fmt: skip
