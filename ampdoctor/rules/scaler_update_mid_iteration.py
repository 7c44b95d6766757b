"""The rule scaler-update-mid-iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.window import Crossed, crossed_steps
from ampdoctor.analysis.wording import counted, number
from ampdoctor.analysis.words.stepping_report import type_of, variable_of
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


def _run(
    *, early: bool, late: bool = True, grow: bool = True, cleared: bool = False, scaler: str = "scaler0"
) -> RunBuilder:
    """Two optimizers whose losses are scaled by one scaler; `early` and `late` say where update() is called."""
    run, scale = RunBuilder().optimizer("Adam").optimizer("SGD", optimizer="optimizer1"), 1024.0
    for _ in range(4):
        run.step(loss=2.0, loss_scale=scale)
        for name in ("optimizer0", "optimizer1"):
            run.call("zero_grad", target=name)
        run.call("backward", scaled="all", optimizers=["optimizer0", "optimizer1"])
        run.call("scaler_step", target="optimizer0")
        run.scaler("step", optimizer="optimizer0", scale=scale)
        if early:
            run.call("update", target="scaler0", file="train.py", line=41)
            after = 2 * scale if grow else scale
            run.scaler("growth" if grow else "hold", scale=scale, scale_after=after)
            scale = after
        if cleared:
            run.call("zero_grad", target="optimizer1")
            run.call("backward", scaled="all", optimizers=["optimizer1"])
        run.call("scaler_step", target="optimizer1")
        run.scaler("step", optimizer="optimizer1", scale=scale, scaler=scaler)
        if late:
            run.call("update", target=scaler)
            run.scaler("hold", scale=scale, scale_after=scale, scaler=scaler)
    return run


class ScalerUpdateMidIteration(Rule):
    """`scaler.update()` is called while the gradients of another optimizer still wait for their step.

    What it means
        The scale belongs to the whole iteration: both optimizers' gradients were multiplied by it. `update()` after the
        first optimizer's step may double or halve it, and the second optimizer's gradients are then divided by the new
        one. `update()` also forgets that gradients have been unscaled, so that `scaler.step` divides them again.

    Why it matters
        Whenever the scale moves, the second optimizer's update is off by the same power of two. An overflow found by
        the first makes its update twice as large, or lets infinities through unseen by the shared scale.

    How to fix
        Call `scaler.update()` once per iteration, after the last `scaler.step`.

    Not to be mistaken for
        Two optimizers in turns, each with its own zero_grad, backward, step and update. Two scalers, one for each.
    """

    code = "AMP406"
    name = "scaler-update-mid-iteration"
    severity = Severity.ERROR
    needs = ("calls", "scaler")
    after = ("accum-unscale-mixed",)
    HEALTHY = (
        Example("once, after all steps", lambda: _run(early=False)),
        Example("in turns, each with a backward pass of its own", lambda: _run(early=True, cleared=True)),
        Example("a scaler for each", lambda: _run(early=True, scaler="scaler1")),
    )
    SICK = (
        Example("after each step", lambda: _run(early=True)),
        Example("between the steps only", lambda: _run(early=True, late=False)),
        Example("the scale has not moved yet", lambda: _run(early=True, grow=False)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        cases: dict[tuple[str, str | None, int | None], list[Crossed]] = {}
        for crossed in crossed_steps(run):
            key = (crossed.taken.optimizer, crossed.update.file, crossed.update.line)
            cases.setdefault(key, []).append(crossed)
        for found in cases.values():
            yield self._finding(run, found)

    def _finding(self, run: Run, cases: list[Crossed]) -> Finding:
        first = cases[0]
        waiting, other = first.taken.optimizer, first.other
        kinds = f"{type_of(run, waiting)} ({waiting})", f"{type_of(run, other)} ({other})"
        source = source_of(first.update)
        moved = [c for c in cases if c.moved != 1.0]
        unscaled = [c for c in cases if c.unscaled]
        evidence = [
            Evidence(
                "crossed_steps", len(cases),
                f"On {counted(len(cases), 'examined step')} update() comes after scaler.step() of {kinds[1]} and "
                f"before that of {kinds[0]}, whose gradients had been made already.",
            ),
            Evidence(
                "moved_steps", len(moved),
                f"On {counted(len(moved), 'of them', 'of them')} it changed the scale"
                + (f", the first time by a factor of {number(moved[0].moved)}." if moved else ": not yet."),
            ),
        ]  # fmt: skip
        if unscaled:
            many = counted(len(unscaled), "of them", "of them")
            text = f"On {many} the gradients had been unscaled before it, and are divided twice."
            evidence.append(Evidence("divided_twice", len(unscaled), text))
        harmed = bool(moved or unscaled)
        return self.finding(
            f"scaler.update() is called between two optimizers' steps: the updates of {kinds[0]} are off by a power of "
            "two whenever the scale moves.",
            evidence=evidence,
            fixes=[_fix(run, first, source)],
            location=Location((), first.taken.step, cases[-1].taken.step, source=source),
            severity=Severity.ERROR if harmed else Severity.WARNING,
            confidence=Confidence.HIGH,
        )


def _fix(run: Run, case: Crossed, source: str | None) -> Fix:
    first, second = variable_of(run, case.other), variable_of(run, case.taken.optimizer)
    code = f"""\
scaler.step({first})
# scaler.update(){comment(source, "remove this line")}
scaler.step({second}){comment(source_of(case.taken.call))}
scaler.update()  # once, after the last step"""
    expected = "Both optimizers' gradients are divided by the scale that multiplied them."
    return Fix("Update the scaler once, after all steps", code, expected, Grade.OBSERVED)
