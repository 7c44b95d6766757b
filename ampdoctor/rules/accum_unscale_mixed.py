"""The rule accum-unscale-mixed."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.window import Mixed, mixed_steps
from ampdoctor.analysis.wording import counted, number, scale_text
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


def _run(*, each: bool, scaled: str = "all", cleared: bool = False, micro_batches: int = 3) -> RunBuilder:
    """Windows of some micro-batches; `each` unscales after every one of them."""
    run = RunBuilder().optimizer("AdamW")
    for _ in range(3):
        run.step(loss=2.0, loss_scale=4096.0, micro_batches=micro_batches)
        run.call("zero_grad", target="optimizer0")
        for micro_batch in range(micro_batches):
            if cleared:
                run.call("zero_grad", target="optimizer0")
            run.call("backward", scaled=scaled if micro_batch else "all", optimizers=["optimizer0"])
            if each or micro_batch == micro_batches - 1:
                run.call("unscale", target="optimizer0", file="train.py", line=52)
                run.call("update", target="scaler0")
        run.call("scaler_step", target="optimizer0")
        run.scaler("step", optimizer="optimizer0", scale=4096.0)
    return run


class AccumUnscaleMixed(Rule):
    """Gradients are unscaled in the middle of an accumulation: micro-batches of one step get different scales.

    What it means
        `scaler.unscale_` divides what is in `.grad` by the scale. Called on every micro-batch, with `update()` behind
        it so that it may be called again, it divides the earlier micro-batches once more each time, while the next one
        is added with the scale in it.

    Why it matters
        No error, and the loss falls: but only the last micro-batch counts, the others are smaller by the scale,
        thousands of times. The effective batch is that of a single micro-batch, and its noise too.

    How to fix
        One scale for the whole window: `scaler.scale(loss / n).backward()` on each micro-batch, and `unscale_`,
        clipping, `step` and `update` on the boundary only.

    Not to be mistaken for
        `unscale_` on the boundary. Gradients that are cleared before the next micro-batch. A second pass on a loss that
        is deliberately not scaled, after `unscale_`.
    """

    code = "AMP408"
    name = "accum-unscale-mixed"
    severity = Severity.ERROR
    needs = ("calls",)
    HEALTHY = (
        Example("unscaled on the boundary", lambda: _run(each=False)),
        Example("each micro-batch by itself", lambda: _run(each=True, cleared=True)),
        Example("an unscaled loss on top", lambda: _run(each=True, scaled="none")),
    )
    SICK = (
        Example("on every micro-batch", lambda: _run(each=True)),
        Example("two micro-batches", lambda: _run(each=True, micro_batches=2)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        cases: dict[tuple[str, str | None, int | None], list[Mixed]] = {}
        for mixed in mixed_steps(run):
            key = (mixed.taken.optimizer, mixed.unscale.file, mixed.unscale.line)
            cases.setdefault(key, []).append(mixed)
        for found in cases.values():
            yield self._finding(found)

    def _finding(self, cases: list[Mixed]) -> Finding:
        first = cases[0]
        passes = int(median(c.passes for c in cases))
        scale = first.taken.scale or 1.0
        source = source_of(first.unscale)
        evidence = [
            Evidence(
                "micro_batches", passes,
                f"{counted(passes, 'scaled backward pass', 'scaled backward passes')} make up a step.",
            ),
            Evidence(
                "unscaled_between", first.unscales,
                f"unscale_() comes between them {counted(first.unscales, 'time')} a step, so that the first is divided "
                f"{first.unscales + 1} times and the last once.",
            ),
            Evidence(
                "loss_scale", scale,
                f"Each further division by {scale_text(scale)} leaves {number(1 / scale)} of what was there.",
            ),
            Evidence("mixed_steps", len(cases), f"So it is on {counted(len(cases), 'examined step')}."),
        ]  # fmt: skip
        return self.finding(
            f"Only the last of {passes} accumulated micro-batches counts: unscale_() between them divides the earlier "
            f"ones by the loss scale of {scale_text(scale)} again.",
            evidence=evidence,
            fixes=[_fix(passes, source)],
            location=Location((), first.taken.step, cases[-1].taken.step, source=source),
        )


def _fix(passes: int, source: str | None) -> Fix:
    code = f"""\
scaler.scale(loss / {passes}).backward()
if (i + 1) % {passes} == 0:  # the boundary: unscale, clip, step and update here, and only here
    scaler.unscale_(optimizer){comment(source)}
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()"""
    expected = f"All {passes} micro-batches count alike."
    return Fix("Unscale and update on the boundary only", code, expected, Grade.OBSERVED)
