"""The rule optimizer-stepped-twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.calls.stepping import Taken, taken_steps
from ampdoctor.analysis.columns import nonfinite_steps
from ampdoctor.analysis.wording import counted
from ampdoctor.analysis.words.stepping_report import type_of
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


def _run(*calls: str, skip: bool = False, times: int = 3) -> RunBuilder:
    """Iterations of a backward pass and then `calls`."""
    run = RunBuilder().optimizer("SGD")
    for _ in range(times):
        run.step(loss=2.0, loss_scale=1024.0, found_inf=skip)
        run.call("zero_grad", target="optimizer0")
        run.call("backward", scaled="all", optimizers=["optimizer0"])
        for line, call in enumerate(calls, 40):
            target = "scaler0" if call == "update" else "optimizer0"
            run.call(call, target=target, file="train.py", line=line)
            if call == "scaler_step":
                run.scaler("skip" if skip else "step", optimizer="optimizer0", scale=1024.0)
    return run


class OptimizerSteppedTwice(Rule):
    """`optimizer.step()` is called beside `scaler.step(optimizer)`: every update is applied twice.

    What it means
        `scaler.step(optimizer)` calls the optimizer itself, unless it has found an infinity. A further
        `optimizer.step()` in the same iteration, left over from the FP32 version of the loop, takes the same gradients
        once more, whatever the scaler has found.

    Why it matters
        The learning rate is doubled in effect, and momentum is counted twice, which may go unnoticed for long. The
        first overflow that the scaler skips is then applied by the second call, and everything is NaN.

    How to fix
        Remove the `optimizer.step()`.

    Not to be mistaken for
        Two optimizers, each stepped once. A new backward pass, or cleared gradients, between the two calls. A loop
        that calls the one or the other depending on whether it uses a scaler.
    """

    code = "AMP404"
    name = "optimizer-stepped-twice"
    severity = Severity.ERROR
    needs = ("calls", "scaler")
    thresholds = {"times": Threshold(2, "once may be the call before a loop that keeps a scheduler from complaining")}
    HEALTHY = (
        Example("once, through the scaler", lambda: _run("scaler_step", "update")),
        Example("cleared before the second call", lambda: _run("scaler_step", "update", "zero_grad", "optimizer_step")),
        Example("once in the whole run", lambda: _run("scaler_step", "optimizer_step", times=1)),
    )
    SICK = (
        Example("after update()", lambda: _run("scaler_step", "update", "optimizer_step")),
        Example("before scaler.step()", lambda: _run("optimizer_step", "scaler_step", "update")),
        Example("also where the scaler skips", lambda: _run("scaler_step", "optimizer_step", skip=True)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        pairs: dict[tuple[str, str | None, int | None], list[tuple[Taken, Taken]]] = {}
        for second in taken_steps(run):
            first = second.repeats
            if first is None or {first.call.call, second.call.call} != {"scaler_step", "optimizer_step"}:
                continue
            stray = _stray(first, second).call
            pairs.setdefault((second.optimizer, stray.file, stray.line), []).append((first, second))
        for cases in pairs.values():
            if len(cases) >= self.threshold("times"):
                yield self._finding(run, cases)

    def _finding(self, run: Run, cases: list[tuple[Taken, Taken]]) -> Finding:
        first, second = cases[0]
        stray = _stray(first, second).call
        source, kind = source_of(stray), type_of(run, first.optimizer)
        guarded = next(t for t in (first, second) if t.call is not stray)
        evidence = [
            Evidence(
                "stepped_twice", len(cases),
                f"{counted(len(cases), 'time')} scaler.step() and {kind}.step() take the same gradients, with no "
                "backward pass and no zero_grad between them.",
            ),
            Evidence("scaler_step_at", _at(guarded.call), f"scaler.step() is at `{_at(guarded.call)}`."),
        ]  # fmt: skip
        let_through = [b for a, b in cases if a.skipped and b.call.call == "optimizer_step"]
        if let_through:
            times = counted(len(let_through), "time")
            text = f"{times} it applied gradients whose infinities had made the scaler skip."
            evidence.append(Evidence("skips_applied", len(let_through), text))
        broken = min((s for s in nonfinite_steps(run, "weight") if s >= first.step), default=None)
        if broken is not None:
            text = f"The weights hold NaN or infinities on step {broken}."
            evidence.append(Evidence("weights_broken_step", broken, text))
        return self.finding(
            f"Each update is applied twice: {kind}.step() is called beside scaler.step(), also on steps that the "
            "scaler skips.",
            evidence=evidence,
            fixes=[_fix(source, guarded.call)],
            location=Location((), first.step, cases[-1][1].step, source=source),
        )


def _stray(first: Taken, second: Taken) -> Taken:
    return first if first.call.call == "optimizer_step" else second


def _at(call: CallRow) -> str:
    return source_of(call) or "an unknown line"


def _fix(source: str | None, guarded: CallRow) -> Fix:
    code = f"""\
scaler.step(optimizer){comment(source_of(guarded), "it steps the optimizer itself")}
scaler.update()
# optimizer.step(){comment(source, "remove this line")}"""
    expected = "Each update is applied once, and not at all where a gradient is infinite."
    return Fix("Remove the second optimizer.step()", code, expected, Grade.OBSERVED)
