"""The rule scaler-bypassed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.backward.divided_by_hand import divided_by_hand
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.stepping import Taken, taken_steps
from ampdoctor.analysis.wording import counted, percent, scale_text
from ampdoctor.analysis.words.stepping_report import type_of
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


def _run(
    *, unscale: bool = False, resized: float | None = 1.0, cleared: bool = False, by_scaler: bool = False
) -> RunBuilder:
    """Three steps of `optimizer.step()` after a scaled backward pass."""
    run = RunBuilder().optimizer("SGD")
    for _ in range(3):
        run.step(loss=2.0, loss_scale=1024.0).call("zero_grad", target="optimizer0")
        run.call("backward", scaled="all", optimizers=["optimizer0"])
        if cleared:
            run.call("zero_grad", target="optimizer0")
            run.call("backward", scaled="none", optimizers=["optimizer0"])
        if unscale:
            run.call("unscale", target="optimizer0")
        kind = "scaler_step" if by_scaler else "optimizer_step"
        at = {"file": "train.py", "line": 42}
        run.call(kind, target="optimizer0", resized=None if by_scaler else resized, **at)
        if by_scaler:
            run.scaler("step", optimizer="optimizer0", scale=1024.0)
    return run


def _unasked() -> RunBuilder:
    """`unscale_`, then `optimizer.step()` on infinite gradients, then `update()`."""
    run = _run(unscale=True).step(loss=math.nan).call("update", target="scaler0")
    return run.scaler("backoff", scale=1024.0, scale_after=512.0)


class ScalerBypassed(Rule):
    """`optimizer.step()` is called on gradients that are still multiplied by the loss scale.

    What it means
        The loss goes through `scaler.scale()`, but the optimizer is stepped directly instead of by
        `scaler.step(optimizer)`. Nobody divides the gradients by the scale, and nobody looks for infinities in them.

    Why it matters
        SGD takes steps tens of thousands of times too large and explodes at once. Adam hides it, because it divides by
        the gradient's size; but weight decay, eps and clipping no longer fit, and the first overflow puts infinities
        into the weights.

    How to fix
        Call `scaler.step(optimizer)` and then `scaler.update()`, once per iteration, instead of `optimizer.step()`.

    Not to be mistaken for
        Gradients that `scaler.unscale_()` or code of your own has divided before the step. A second optimizer, whose
        loss is not scaled. Scaled gradients that were cleared before the step. A disabled scaler.
    """

    code = "AMP403"
    name = "scaler-bypassed"
    severity = Severity.ERROR
    needs = ("calls",)
    after = ("optimizer-stepped-twice",)
    thresholds = {
        "kept": Threshold(0.5, "gradients divided by the smallest scale that scales at all, 2, are half as large")
    }
    HEALTHY = (
        Example("through the scaler", lambda: _run(by_scaler=True)),
        Example("unscaled by the scaler first", lambda: _run(unscale=True)),
        Example("divided by hand", lambda: _run(resized=1 / 1024)),
        Example("scaled gradients that are cleared", lambda: _run(cleared=True)),
    )
    SICK = (
        Example("the scale is left in", _run),
        Example("sizes unknown", lambda: _run(resized=None)),
        Example("unscaled, and infinities are taken", _unasked),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        taken = taken_steps(run)
        for name in sorted({t.optimizer for t in taken}):
            own = [t for t in taken if t.optimizer == name]
            followed = {id(t.repeats.call) for t in own if t.repeats is not None}
            cases = [t for t in own if _bypassed(t) and id(t.call) not in followed]
            if cases and not self._divided(run, cases):
                yield self._finding(run, own, cases)
            elif (unchecked := _unchecked(run, own)) is not None:
                yield self._infinite(run, *unchecked)

    def _divided(self, run: Run, cases: list[Taken]) -> bool:
        """Whether the user's code divides the gradients, or whether none of the cases is sure to concern them."""
        known = [t for t in cases if t.known]
        smaller = [t for t in known if (t.call.resized or 1.0) <= self.threshold("kept")]
        # A hook may divide as the gradients arrive: then their size alone tells.
        arrived = [t for t in known if t.scale and divided_by_hand(run, t.step, t.scale)]
        return not known or bool(smaller) or 2 * len(arrived) > len(known)

    def _finding(self, run: Run, own: list[Taken], cases: list[Taken]) -> Finding:
        first, last = cases[0], cases[-1]
        scale = first.scale or 1.0
        share = len(cases) / len(own)
        source = source_of(first.call)
        kind = type_of(run, first.optimizer)
        sized = next((t for t in cases if t.call.resized is not None), None)
        evidence = [
            Evidence(
                "loss_scale", scale,
                f"On step {first.step} {kind}.step() takes gradients of a loss that scaler.scale() had multiplied by "
                f"{scale_text(scale)}.",
            ),
            Evidence(
                "steps_share", share,
                f"So it is on {percent(share)} of the {counted(len(own), 'step')} of this optimizer.",
            ),
        ]  # fmt: skip
        if sized is not None:
            ratio = sized.call.resized or 0.0
            text = f"Between backward and step no code divides them: their size stays at {ratio:.3g} times what it was."
            evidence.append(Evidence("size_ratio", ratio, text))
        broken = next(
            (s for s in run.steps if s.step >= first.step and s.loss is not None and not math.isfinite(s.loss)), None
        )  # fmt: skip
        if broken is not None:
            text = f"The loss is NaN or infinite from step {broken.step} on."
            evidence.append(Evidence("first_nonfinite_step", broken.step, text))
        return self.finding(
            f"{kind} steps on gradients that are still multiplied by the loss scale of {scale_text(scale)}: "
            "optimizer.step() is called where scaler.step(optimizer) belongs.",
            evidence=evidence,
            fixes=[_fix(source, kind, scale)],
            location=Location((), first.step, last.step, source=source),
            confidence=Confidence.HIGH if sized is not None else Confidence.MEDIUM,
        )

    def _infinite(self, run: Run, taken: Taken, broken: int) -> Finding:
        kind, source = type_of(run, taken.optimizer), source_of(taken.call)
        text = f"After step {taken.step} the scaler backs off: its gradients were infinite, and {kind} took them."
        return self.finding(
            f"{kind} steps on infinite gradients: optimizer.step() after scaler.unscale_() does not look for them, "
            "scaler.step(optimizer) would.",
            evidence=[
                Evidence("step_taken", taken.step, text),
                Evidence("first_nonfinite_step", broken, f"The loss is NaN or infinite from step {broken} on."),
            ],
            fixes=[_fix(source, kind, taken.scale or 1.0)],
            location=Location((), taken.step, broken, source=source),
        )


def _unchecked(run: Run, own: list[Taken]) -> tuple[Taken, int] | None:
    """Return the step that took infinities which a scaler had seen, and the step from which the loss is not finite."""
    backoffs = {row.step for row in run.scaler if row.event == "backoff"}
    broken = next((s.step for s in run.steps if s.loss is not None and not math.isfinite(s.loss)), None)
    if broken is None:
        return None
    # The scaler's update comes after the optimizer's step, and so belongs to the next one.
    by_hand = (t for t in own if t.call.call == "optimizer_step" and broken - 2 <= t.step <= broken)
    harm = (t for t in by_hand if _unscaled(t) and {t.step, t.step + 1} & backoffs)
    return next(((t, broken) for t in harm), None)


def _unscaled(taken: Taken) -> bool:
    return any(c.call == "unscale" and c.target == taken.optimizer for c in taken.calls)


def _bypassed(taken: Taken) -> bool:
    """Whether an optimizer stepped by itself, on gradients that were scaled and not unscaled by a scaler."""
    if taken.call.call != "optimizer_step" or not taken.scaled or taken.scale in {None, 1.0}:
        return False
    return not _unscaled(taken)


def _fix(source: str | None, kind: str, scale: float) -> Fix:
    code = f"""\
scaler.step(optimizer){comment(source, f"instead of optimizer.step() of {kind}")}
scaler.update()"""
    expected = f"Gradients are divided by {scale_text(scale)} before the step, and steps with infinities are skipped."
    return Fix("Step through the scaler", code, expected, Grade.OBSERVED)
