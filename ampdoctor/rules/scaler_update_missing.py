"""The rule scaler-update-missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.calls.exceptions import aftermath, place_of
from ampdoctor.analysis.calls.order import calls_named, source_of
from ampdoctor.analysis.calls.scaler_windows import Misuse, Refusal, refusals
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run

_STEPPED = "RuntimeError: step() has already been called since the last update()."
_AFTER_STEP = "RuntimeError: unscale_() is being called after step()."
_UNSCALED = "RuntimeError: unscale_() has already been called on this optimizer since the last update()."


def _run(*calls: str, refused: str = "scaler_step", error: str = _STEPPED) -> RunBuilder:
    """A first step of `calls`, and a second one whose call is refused."""
    run = RunBuilder().step(loss=1.0)
    target = {"update": "scaler0", "backward": None}
    for line, call in enumerate(calls, 30):
        run.call(call, target=target.get(call, "optimizer0"), file="train.py", line=line)
    for call in ("backward", refused):
        columns = {"error": error, "target": "optimizer0"} if call == refused else {}
        run.call(call, step=1, file="train.py", line=40, **columns)
    return run


class ScalerUpdateMissing(Rule):
    """`scaler.update()` is missing: the scaler refuses the next step.

    What it means
        A scaler keeps, for each optimizer, whether its gradients have been unscaled and stepped with since the last
        `update()`. Without that call the next iteration looks like a second step with the same gradients: "step() has
        already been called since the last update()", or, where gradients are clipped, "unscale_() is being called
        after step()".

    Why it matters
        The second iteration ends the training. Without `update()` the scale would not follow the gradients either.

    How to fix
        Call `scaler.update()` once at the end of each iteration, after the `scaler.step()` of every optimizer, and also
        where an iteration is given up after `unscale_`.

    Not to be mistaken for
        `unscale_` on each micro-batch of an accumulation (unscale-twice), where no update is missing.
    """

    code = "AMP405"
    name = "scaler-update-missing"
    severity = Severity.ERROR
    needs = ("calls",)
    HEALTHY = (
        Example(
            "an update on each step",
            lambda: RunBuilder().step().call("backward").call("scaler_step", target="optimizer0").call("update"),
        ),
        Example(
            "unscale_ on each micro-batch",
            lambda: _run("backward", "unscale", refused="unscale", error=_UNSCALED),
        ),
    )  # fmt: skip
    SICK = (
        Example("step after step", lambda: _run("backward", "scaler_step")),
        Example(
            "with clipping",
            lambda: _run(
                "backward", "unscale", "clip_norm", "scaler_step", refused="unscale", error=_AFTER_STEP
            ),
        ),
        Example(
            "an iteration given up after unscale_",
            lambda: _run("backward", "unscale", "zero_grad", refused="unscale", error=_UNSCALED),
        ),
        Example(
            "unscaled by the scaler, stepped without it",
            lambda: _run("backward", "unscale", "optimizer_step", refused="unscale", error=_UNSCALED),
        ),
    )  # fmt: skip

    def check(self, run: Run) -> Iterator[Finding]:
        mine = (Misuse.NO_UPDATE, Misuse.NO_UPDATE_AFTER_DROPPING, Misuse.STEPPED_TWICE)
        refused = [r for r in refusals(run) if r.misuse in mine]
        if not refused:
            return
        first = refused[0]
        severity, evidence = aftermath(run, [r.failure for r in refused], mistake=True)
        yield self.finding(
            _summary(run, first),
            evidence=[*evidence, *_evidence(run, first)],
            fixes=_fixes(first),
            location=place_of([r.failure for r in refused]),
            severity=severity,
        )


def _updates(run: Run) -> bool:
    return any(c.error is None for c in calls_named(run, "update"))


def _summary(run: Run, refusal: Refusal) -> str:
    quote = f"“{refusal.failure.message.rstrip('.')}”"
    if refusal.misuse is Misuse.STEPPED_TWICE:
        return f"scaler.step() is called twice with the same gradients: {quote}."
    if refusal.misuse is Misuse.NO_UPDATE_AFTER_DROPPING:
        return f"An iteration ends after unscale_() without scaler.update(): {quote}."
    how = "is not called after scaler.step()" if _updates(run) else "is never called"
    return f"scaler.update() {how}, so the scaler refuses the next iteration: {quote}."


def _evidence(run: Run, refusal: Refusal) -> list[Evidence]:
    between = refusal.backwards_between
    called = "Elsewhere in the run scaler.update() was called, between these two calls it was not."
    text = called if _updates(run) else "`scaler.update()` was not called in the run."
    evidence = [Evidence("updates_between", 0, text)]
    if refusal.earlier is not None:
        what = "unscale_()" if refusal.earlier.call == "unscale" else "scaler.step()"
        line = source_of(refusal.earlier)
        where = f" at {line}" if line else ""
        passes = counted(between, "backward pass", "backward passes") if between else "No `backward()`"
        text = f"{passes} came after the {what}{where} before it."
        evidence.append(Evidence("backward_passes_between", between, text))
    return evidence


def _fixes(refusal: Refusal) -> list[Fix]:
    earlier, at = refusal.earlier, comment(refusal.failure.source)
    before = comment(source_of(earlier)) if earlier is not None else at
    expected = "The scaler then takes each iteration by itself, and its scale follows the gradients."
    if refusal.misuse is Misuse.STEPPED_TWICE:
        code = f"""\
scaler.step(optimizer){before}
# and not again{at}
scaler.update()"""
        return [Fix("Step once per iteration, then update", code, expected, Grade.OBSERVED)]
    if refusal.misuse is Misuse.NO_UPDATE_AFTER_DROPPING:
        code = f"""\
scaler.unscale_(optimizer){before}
if give_up:  # your condition
    optimizer.zero_grad()
    scaler.update()  # add this line
    continue"""
        return [Fix("Update where an iteration is given up", code, expected, Grade.OBSERVED)]
    step = "scaler.step(optimizer)"
    if earlier is not None and earlier.call == "unscale":
        step, before = "scaler.step(optimizer)  # instead of optimizer.step()", ""
    code = f"""\
scaler.scale(loss).backward()
{step}{before}
scaler.update()  # add this line: once per iteration, after the last scaler.step()"""
    return [Fix("Call scaler.update() after scaler.step()", code, expected, Grade.OBSERVED)]
