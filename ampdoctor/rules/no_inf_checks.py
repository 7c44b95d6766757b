"""The rule no-inf-checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.calls.error_messages import NO_INF_CHECKS
from ampdoctor.analysis.calls.exceptions import Failure, aftermath, calls_before, matching, place_of
from ampdoctor.analysis.calls.order import source_of, when
from ampdoctor.analysis.calls.scaler_windows import of_optimizer, window_before
from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow

_STEP = "AssertionError: No inf checks were recorded for this optimizer."
_UPDATE = "AssertionError: No inf checks were recorded prior to update."


def _run(*calls: str, refused: str = "scaler_step", error: str = _STEP) -> RunBuilder:
    """A good step, and one of `calls` after which `refused` raises."""
    run = RunBuilder().step(loss=1.0)
    for call in ("zero_grad", "backward", "scaler_step", "update"):
        run.call(call, target=None if call == "backward" else "optimizer0")
    for line, call in enumerate(calls, 30):
        columns = {"optimizers": ["optimizer1"]} if call == "backward" else {"target": "optimizer0"}
        run.call(call, step=1, file="train.py", line=line, **columns)
    return run.call(refused, step=1, target="optimizer0", file="train.py", line=50, error=error)


class NoInfChecks(Rule):
    """A scaler is to step an optimizer none of whose parameters has a gradient.

    What it means
        `scaler.step` decides by whether an infinite or NaN gradient was found. Where no parameter of the optimizer
        holds a gradient there is nothing to look at: "No inf checks were recorded for this optimizer". The optimizer's
        parameters are not part of this iteration's graph: a branch that was not used, a detached tensor, an optimizer
        made from other parameters than those of the model that runs, or gradients cleared between backward and step.

    Why it matters
        The training ends there; without a scaler the optimizer would have stepped without doing anything, and nobody
        would have noticed that this part does not learn.

    How to fix
        Mend the graph, or, where a part is meant to be left out now and then, step its optimizer only when some of its
        parameters have a gradient.

    Not to be mistaken for
        Gradients that are zero: those are checked. Single parameters without a gradient beside others that have one.
    """

    code = "AMP409"
    name = "no-inf-checks"
    severity = Severity.ERROR
    needs = ("calls",)
    after = ("scaler-bypassed",)
    HEALTHY = (
        Example("gradients for the optimizer", lambda: RunBuilder().step().call("backward").call("scaler_step")),
        Example("another exception", lambda: _run("backward", error="RuntimeError: step() has already been called")),
    )  # fmt: skip
    SICK = (
        Example("a branch that is not used", lambda: _run("zero_grad", "backward")),
        Example("cleared between backward and step", lambda: _run("backward", "zero_grad")),
        Example("no backward pass", lambda: _run("zero_grad")),
        Example("an update without a step", lambda: _run("backward", refused="update", error=_UPDATE)),
    )  # fmt: skip

    def check(self, run: Run) -> Iterator[Finding]:
        found = matching(run, NO_INF_CHECKS)
        if not found:
            return
        severity, evidence = aftermath(run, found, mistake=True)
        what, told, fixes = _case(run, found[0])
        yield self.finding(
            f"{what}: “{found[0].message.rstrip('.')}”.",
            evidence=[*evidence, *told],
            fixes=fixes,
            location=place_of(found),
            severity=severity,
        )


def _case(run: Run, failure: Failure) -> tuple[str, list[Evidence], list[Fix]]:
    """Return why there were no gradients, what tells it and what helps."""
    window, name = window_before(run, failure), failure.row.target
    if failure.row.call == "update":
        return _without_step(failure, window)
    backwards = [c for c in window if c.call == "backward"]
    last = backwards[-1] if backwards else None
    if last is None:
        text = "There was no `backward()` since the last update()."
        told = [Evidence("backward_passes", 0, text)]
        return (f"scaler.step() is called for {name} without a backward pass before it", told, [_order(failure)])
    cleared = [c for c in of_optimizer(window, name, "zero_grad") if when(c) > when(last)]
    if cleared:
        line = source_of(cleared[0])
        at = f", at {line}" if line else ""
        text = f"zero_grad() was called {counted(len(cleared), 'time')} after the backward pass{at}."
        told = [Evidence("cleared_after_backward", len(cleared), text)]
        return (
            f"The gradients of {name} are cleared between backward() and scaler.step()",
            told,
            [_order(failure, line)],
        )
    stepped = len(of_optimizer(calls_before(run, failure), name, "scaler_step"))
    text = f"{name} had been stepped {counted(stepped, 'time')} before."
    text = text if stepped else f"`{name}` had not been stepped before."
    told = [_reached(backwards), Evidence("steps_before", stepped, text)]
    return (f"No parameter of {name} has a gradient on step {failure.row.step}", told, _graph_fixes(failure, stepped))


def _reached(backwards: list[CallRow]) -> Evidence:
    names = sorted({name for c in backwards for name in c.optimizers or ()})
    passes = counted(len(backwards), "backward pass", "backward passes")
    reached = f"which reached {', '.join(names)}" if names else "and none is known to have reached it"
    return Evidence("backward_passes", len(backwards), f"Since the last update() came {passes}, {reached}.")


def _without_step(failure: Failure, window: tuple[CallRow, ...]) -> tuple[str, list[Evidence], list[Fix]]:
    steps = sum(c.call in {"scaler_step", "unscale"} for c in window)
    text = f"Since the update() before, scaler.step() and unscale_() were called {counted(steps, 'time')}."
    text = text if steps else "Neither `scaler.step()` nor `scaler.unscale_()` was called since the update() before."
    code = f"""\
scaler.step(optimizer)
scaler.update(){comment(failure.source)}, once and only after a step"""
    fix = Fix("Update only after a step", code, "Then there is something that the scale can follow.", Grade.OBSERVED)
    return (
        "scaler.update() is called without a scaler.step() before it",
        [Evidence("steps_in_window", steps, text)],
        [fix],
    )


def _order(failure: Failure, cleared: str | None = None) -> Fix:
    code = f"""\
optimizer.zero_grad(){comment(f"not at {cleared}" if cleared else None)}
scaler.scale(loss).backward()
scaler.step(optimizer){comment(failure.source)}
scaler.update()"""
    return Fix(
        "Clear, then backward, then step", code, "The step then finds this iteration's gradients.", Grade.OBSERVED
    )


def _graph_fixes(failure: Failure, stepped: int) -> list[Fix]:
    at = comment(failure.source)
    guard = f"""\
if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
    scaler.step(optimizer){at}
scaler.update()"""
    search = """\
names = {id(p): name for name, p in model.named_parameters()}
for group in optimizer.param_groups:
    for p in group["params"]:  # after loss.backward()
        print(names.get(id(p), "not in this model"), p.requires_grad, p.grad is None)"""
    conditional = Fix("Step this optimizer only when it has gradients", guard,
                      "Right where a part is left out of some iterations on purpose.", Grade.OBSERVED)  # fmt: skip
    mend = Fix("Find what is not in the graph", search,
               "Shows parameters of another model, frozen ones, and those that the loss does not reach.")  # fmt: skip
    return [conditional, mend] if stepped else [mend, conditional]
