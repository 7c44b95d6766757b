"""The rule scale-below-one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import bf16_autocast, comment, line_of
from ampdoctor.analysis.calls.scale_updates import scale_updates
from ampdoctor.analysis.wording import counted, number, scale_text
from ampdoctor.finding import Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import FP16
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.analysis.calls.scale_updates import ScaleUpdate
    from ampdoctor.trace.run import Run


def _run(skips: int, steps: int, *, scale: float = 65536.0, loss: float = 900.0) -> RunBuilder:
    """So many skipped steps, and then so many that are taken."""
    run = RunBuilder(device="cuda: NVIDIA A100").step(loss=loss)
    run.scaler("seen", enabled=True, scale=scale)
    for index in range(skips + steps):
        skip = index < skips
        if index:
            run.step(loss=loss)
        run.scaler("skip" if skip else "step", scale=scale, found_inf=skip)
        after = scale / 2 if skip else scale
        run.scaler("backoff" if skip else "hold", scale=scale, scale_after=after)
        scale = after
    return run


class ScaleBelowOne(Rule):
    """The loss scale has settled below 1: the true gradients are too large for FP16.

    What it means
        A loss scale is there to lift small gradients into FP16's range. Here the backward pass overflows even at a
        scale of 1, that is, a true gradient passes 65504, and the scaler had to go below 1 to find one that does not:
        it shrinks the gradients now. That is what models do whose weights or loss were made for BF16.

    Why it matters
        There is no room left above, and none is gained below: what is small is pushed towards FP16's lower edge.
        Every growth of the scale costs a skipped step, and gradients that grow a little more end the run.

    How to fix
        Use BF16, whose range is that of FP32. Or bring the loss down: a mean in place of a sum, normalised targets.

    Not to be mistaken for
        The first backoffs from 65536, which end above 1. A scale that falls and falls with every step skipped: no
        scale helps there (scale-collapse). A small scale that somebody has chosen.
    """

    code = "AMP105"
    name = "scale-below-one"
    severity = Severity.WARNING
    needs = ("scaler.scale_after",)
    after = ("gradient-penalty-scaled", "backward-under-autocast", "stale-inf-grads")
    thresholds = {
        "scale": Threshold(1.0, "below it, scaling shrinks gradients instead of growing them"),
        "settled_steps": Threshold(3, "a step or two may be the pause of a collapse, before the next infinity comes"),
    }
    HEALTHY = (
        Example("the backoffs from 65536 end at 2", lambda: _run(15, 20)),
        Example("every step is skipped", lambda: _run(40, 0, loss=math.nan)),
        Example("chosen below 1, and never moved", lambda: _run(0, 20, scale=0.25)),
    )
    SICK = (
        Example("settled at 1/4", lambda: _run(18, 20)),
        Example("settled at 1/2, from a scale of 8", lambda: _run(4, 10, scale=8.0)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        losses = {s.step: s.loss for s in run.steps}
        for updates in scale_updates(run).values():
            below = [
                u for u in updates
                if u.event == "backoff" and u.before <= self.threshold("scale")
                and math.isfinite(losses.get(u.step) or 0.0)
            ]  # fmt: skip
            last = updates[-1].after if updates else math.inf
            taken = [
                u for u in updates
                if below and u.step > below[0].step and u.event != "backoff" and u.before < self.threshold("scale")
            ]  # fmt: skip
            if last < self.threshold("scale") and len(taken) >= self.threshold("settled_steps"):
                yield self._finding(run, updates, below, taken)

    def _finding(
        self, run: Run, updates: Sequence[ScaleUpdate], below: Sequence[ScaleUpdate],
        taken: Sequence[ScaleUpdate],
    ) -> Finding:  # fmt: skip
        last = updates[-1].after
        skips = [u for u in updates if u.event == "backoff"]
        least = FP16.overflow_at / below[0].before
        loss = next((s.loss for s in run.steps if s.loss is not None and math.isfinite(s.loss)), None)
        evidence = [
            Evidence(
                "final_scale", last,
                f"The scale fell from {scale_text(skips[0].before)} to {last:g}; "
                f"{counted(len(skips), 'step')} were skipped.",
            ),
            Evidence(
                "steps_below_one", len(taken),
                f"{counted(len(taken), 'step')} were taken at a scale below 1, so the forward pass is finite.",
            ),
            Evidence(
                "smallest_overflow", least,
                f"On step {below[0].step} gradients overflowed at a scale of {scale_text(below[0].before)}: without "
                f"scaling the largest passes {number(least)}, beyond FP16's 65504.",
            ),
        ]  # fmt: skip
        if loss is not None:
            evidence.append(Evidence("first_loss", loss, f"The loss itself was {number(loss)} at first."))
        return self.finding(
            f"The loss scale has settled at {last:g}, below 1: gradients are too large for FP16, not too small.",
            evidence=evidence,
            fixes=_fixes(run),
            location=Location((), skips[0].step, updates[-1].step),
        )


def _fixes(run: Run) -> list[Fix]:
    smaller = f"""\
loss = criterion(output, target).mean()  # not .sum()
scaler.scale(loss).backward(){comment(line_of(run, "backward"))}"""
    return [
        bf16_autocast(run, "Gradients of this size fit unscaled, and no step need be skipped."),
        Fix(
            "Bring the loss down, with a mean or normalised targets",
            smaller,
            "The gradients shrink with it, and the scaler finds a scale above 1.",
        ),
    ]
