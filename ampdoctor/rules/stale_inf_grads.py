"""The rule stale-inf-grads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment, line_of
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.stepping import Taken, taken_steps
from ampdoctor.analysis.wording import counted, scale_text
from ampdoctor.analysis.words.stepping_report import type_of
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


def _run(*, stale: bool, skips: int, loss: float = 2.0) -> RunBuilder:
    """Three good steps and then `skips` skipped ones; `stale`: what was found on the first is never cleared."""
    run, scale = RunBuilder(), 65536.0
    for step in range(3 + skips):
        skip = step >= 3
        held = ["optimizer0"] if stale and step > 3 else []
        run.step(loss=loss, loss_scale=scale, found_inf=skip, applied=not skip)
        if not skip:
            run.call("zero_grad", target="optimizer0")
        run.call(
            "backward", scaled="all", optimizers=["optimizer0"], holding=held, holding_nonfinite=held,
            file="train.py", line=30,
        )  # fmt: skip
        run.call("scaler_step", target="optimizer0")
        run.scaler("skip" if skip else "step", optimizer="optimizer0", scale=scale, found_inf=skip)
        run.call("update", target="scaler0")
        after = scale / 2 if skip else scale
        run.scaler("backoff" if skip else "hold", scale=scale, scale_after=after)
        scale = after
    return run


@dataclass
class _Stale:
    """Skips in a row by gradients that were infinite before anything was added to them.

    Attributes:
        origin: the skip that found the infinity.
        skips: the skips after it, each with the backward pass that found it still there.
    """

    origin: Taken
    skips: list[tuple[Taken, CallRow]]


class StaleInfGrads(Rule):
    """An infinity stays in `.grad`: after one overflow every step is skipped, because it is never cleared.

    What it means
        `zero_grad()` is called only after steps that the scaler has taken. On a step that it skips, the infinite
        gradients stay; the next backward pass adds to them, infinity plus anything is infinite, and so that step is
        skipped as well, and all that follow.

    Why it matters
        One harmless overflow, of the kind that a dynamic scaler has every 2000 steps, ends the training, while the loss
        stays finite and the scale falls to nothing.

    How to fix
        Call `optimizer.zero_grad()` on every iteration, whether the step was taken or not.

    Not to be mistaken for
        A forward pass that overflows on every step: there the gradients are clean when the backward pass begins. The
        first backoffs of a dynamic scaler.
    """

    code = "AMP108"
    name = "stale-inf-grads"
    severity = Severity.ERROR
    needs = ("calls.holding_nonfinite", "scaler")
    thresholds = {"skips": Threshold(2, "one such step is lost; a second shows that nobody clears them")}
    HEALTHY = (
        Example("skips with cleared gradients", lambda: _run(stale=False, skips=6)),
        Example("a forward pass that is NaN", lambda: _run(stale=False, skips=6, loss=math.nan)),
        Example("held once", lambda: _run(stale=True, skips=2)),
    )
    SICK = (
        Example("never cleared", lambda: _run(stale=True, skips=12)),
        Example("three skips so far", lambda: _run(stale=True, skips=3)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found: dict[str, list[_Stale]] = {}
        for stale in _stale(run):
            if len(stale.skips) >= self.threshold("skips"):
                found.setdefault(stale.origin.optimizer, []).append(stale)
        for cases in found.values():
            yield self._finding(run, cases)

    def _finding(self, run: Run, cases: list[_Stale]) -> Finding:
        stale = max(cases, key=lambda s: len(s.skips))
        origin, (last, _) = stale.origin, stale.skips[-1]
        kind = type_of(run, origin.optimizer)
        losses = {s.step: s.loss for s in run.steps}
        finite = sum((loss := losses.get(t.step)) is not None and math.isfinite(loss) for t, _ in stale.skips)
        evidence = [
            Evidence(
                "overflow_step", origin.step, f"The scaler finds an infinity on step {origin.step} and skips it."
            ),
            Evidence(
                "stale_skips", len(stale.skips),
                f"The gradients of {kind} still hold it when the next backward pass begins, and so on for "
                f"{counted(len(stale.skips), 'skipped step')} in a row.",
            ),
            Evidence("finite_losses", finite, f"On {finite} of them the loss itself is finite."),
        ]  # fmt: skip
        if origin.scale and last.scale:
            text = f"The scale falls from {scale_text(origin.scale)} to {scale_text(last.scale)} for nothing."
            evidence.append(Evidence("final_scale", last.scale, text))
        source = source_of(stale.skips[0][1])
        return self.finding(
            f"After the overflow on step {origin.step} every step is skipped: the infinity stays in .grad, because it "
            "is not cleared on skipped steps.",
            evidence=evidence,
            fixes=[_fix(run, source)],
            location=Location((), cases[0].origin.step, last.step, source=source),
        )  # fmt: skip


def _stale(run: Run) -> Iterator[_Stale]:
    """Yield every chain of skips by an infinity that was there before, in order."""
    at_hand: dict[str, _Stale] = {}
    for taken in taken_steps(run):
        if taken.call.call != "scaler_step":
            continue
        name = taken.optimizer
        dirty = _still_there(taken)
        if not taken.skipped or dirty is None:
            if name in at_hand:
                yield at_hand.pop(name)
            if taken.skipped:
                at_hand[name] = _Stale(taken, [])
        elif name in at_hand:
            at_hand[name].skips.append((taken, dirty))
    yield from at_hand.values()


def _still_there(taken: Taken) -> CallRow | None:
    """Return the first backward pass before which the gradients were infinite, if they were not cleared before it."""
    first = next((b for b in taken.backwards if b.holding_nonfinite is not None), None)
    known = first is not None and first is taken.backwards[0]
    return first if known and first and taken.optimizer in (first.holding_nonfinite or ()) else None


def _fix(run: Run, source: str | None) -> Fix:
    cleared = line_of(run, "zero_grad")
    code = f"""\
optimizer.zero_grad(set_to_none=True){comment(cleared and f"now at {cleared}", "on every iteration, unconditionally")}
scaler.scale(loss).backward(){comment(source)}
scaler.step(optimizer)
scaler.update()"""
    expected = "An overflow costs one step, and the next one starts from clean gradients."
    return Fix("Clear the gradients on every iteration", code, expected, Grade.OBSERVED)
