"""The rule unscale-twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.calls.exceptions import aftermath, place_of
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.scaler_windows import Misuse, Refusal, refusals
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run

_AGAIN = "RuntimeError: unscale_() has already been called on this optimizer since the last update()."
_AFTER_STEP = "RuntimeError: unscale_() is being called after step()."


def _run(*calls: str, error: str = _AGAIN) -> RunBuilder:
    """The calls of a first step, after which `unscale_` is refused."""
    run = RunBuilder()
    for line, call in enumerate(calls, 30):
        target = None if call == "backward" else "optimizer0"
        run.call(call, step=0, target=target, file="train.py", line=line)
    return run.call("unscale", step=0, target="optimizer0", file="train.py", line=31, error=error)


class UnscaleTwice(Rule):
    """`unscale_()` is called twice before the scaler's `update()`: the gradients would be divided by the scale twice.

    What it means
        `scaler.unscale_(optimizer)` divides the gradients by the loss scale, in place. With gradient accumulation it
        belongs on the last micro-batch of a window only: on an earlier one, what the later ones add is still scaled,
        and a second division would spoil what is there. So the scaler refuses: "unscale_() has already been called on
        this optimizer since the last update()". `scaler.step` counts as well, as it unscales what is not yet unscaled.

    Why it matters
        The training ends with the second micro-batch.

    How to fix
        Let unscale_, clipping, step and update run together, once per accumulation window.

    Not to be mistaken for
        An `update()` that is missing altogether (scaler-update-missing): there the gradients had been used, or
        dropped. Several optimizers that are unscaled one after the other.
    """

    code = "AMP407"
    name = "unscale-twice"
    severity = Severity.ERROR
    needs = ("calls",)
    HEALTHY = (
        Example("once per window", lambda: RunBuilder().step().call("backward").call("backward").call("unscale")),
        Example("no update after a step", lambda: _run("unscale", "scaler_step", "backward", error=_AFTER_STEP)),
        Example("given up without an update", lambda: _run("backward", "unscale", "zero_grad", "backward")),
    )  # fmt: skip
    SICK = (
        Example("on each micro-batch", lambda: _run("backward", "unscale", "clip_norm", "backward")),
        Example("twice in a row", lambda: _run("backward", "unscale", "clip_norm")),
        Example("after the step", lambda: _run("backward", "scaler_step", error=_AFTER_STEP)),
    )  # fmt: skip

    def check(self, run: Run) -> Iterator[Finding]:
        mine = (Misuse.EACH_MICRO_BATCH, Misuse.UNSCALED_TWICE, Misuse.UNSCALED_AFTER_STEP)
        refused = [r for r in refusals(run) if r.misuse in mine]
        if not refused:
            return
        first = refused[0]
        severity, evidence = aftermath(run, [r.failure for r in refused], mistake=True)
        yield self.finding(
            f"{_what(first)}: “{first.failure.message.rstrip('.')}”.",
            evidence=[*evidence, *_evidence(first)],
            fixes=[_fix(first)],
            location=place_of([r.failure for r in refused]),
            severity=severity,
        )


def _what(refusal: Refusal) -> str:
    if refusal.misuse is Misuse.EACH_MICRO_BATCH:
        return "Gradients are unscaled on each micro-batch of an accumulation"
    if refusal.misuse is Misuse.UNSCALED_AFTER_STEP:
        return "unscale_() is called after scaler.step(), which has unscaled the gradients itself"
    return "unscale_() is called twice for the same gradients"


def _evidence(refusal: Refusal) -> list[Evidence]:
    if refusal.earlier is None:
        return []
    line = source_of(refusal.earlier)
    what = "scaler.step()" if refusal.earlier.call == "scaler_step" else "unscale_()"
    passes = counted(refusal.backwards_between, "backward pass", "backward passes")
    came = f"came {passes}, whose gradients were added to unscaled ones"
    came = came if refusal.backwards_between else "there was no `backward()`"
    text = f"Between the earlier {what}{f' at {line}' if line else ''} and this call {came}."
    evidence = [Evidence("backward_passes_between", refusal.backwards_between, text)]
    updates = sum(c.call == "update" for c in refusal.window)
    return [*evidence, Evidence("updates_between", updates, "There was no `scaler.update()` between them.")]


def _fix(refusal: Refusal) -> Fix:
    at = comment(refusal.failure.source)
    if refusal.misuse is Misuse.EACH_MICRO_BATCH:
        code = f"""\
scaler.scale(loss / accumulate).backward()
if last_micro_batch:
    scaler.unscale_(optimizer){at}
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()"""
        expected = "The window's sum is divided by the scale once, and clipped as a whole."
        return Fix("Unscale once per accumulation window", code, expected, Grade.OBSERVED)
    before = comment(source_of(refusal.earlier)) if refusal.earlier is not None else ""
    if refusal.misuse is Misuse.UNSCALED_AFTER_STEP:
        code = f"""\
scaler.unscale_(optimizer)  # before the step, or not at all{at}
scaler.step(optimizer){before}
scaler.update()"""
        return Fix("Unscale before the step", code, "After it nothing is left to unscale.", Grade.OBSERVED)
    code = f"""\
scaler.unscale_(optimizer){before}
# remove the second call{at}
scaler.step(optimizer)
scaler.update()"""
    return Fix("Unscale once", code, "The gradients are unscaled after the first call.", Grade.OBSERVED)
