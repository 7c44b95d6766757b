"""The rule zero-init-deadlock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.backward.deadlocks import Deadlocked, deadlocked
from ampdoctor.analysis.backward.zero_gradients import compared_with_fp32
from ampdoctor.analysis.twins.shared_with_fp32 import without_half
from ampdoctor.analysis.wording import counted, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


def _run(*, a: float = 0.0, moves_from: int = 99, arrives: bool = True, steps: int = 5) -> RunBuilder:
    """An adapter of two factors; A holds `a`, and from a step on B has a gradient and moves."""
    run = RunBuilder(device="cuda: NVIDIA A100")

    def values(x: float) -> dict[str, Any]:
        return {"exponents": {-4: 100}} if x else {"zeros": 100}

    for step in range(steps):
        run.step(loss=1.38)
        moves = float(step >= moves_from)
        run.tensor("base", "activation", dtype="float16", exponents={0: 100})
        run.tensor("a", "weight", slot="weight", shape=[10, 10], **values(a))
        run.tensor("a", "activation", dtype="float16", **values(a))
        run.tensor("b", "weight", slot="weight", shape=[10, 10], **values(moves))
        run.tensor("b", "activation", dtype="float16", **values(moves))
        run.tensor("b", "grad_output", dtype="float16", **values(float(arrives)))
        for name, moving in (("a", moves), ("b", a or moves), ("head", 1.0)):
            run.tensor(name, "weight_grad", slot="weight", shape=[10, 10], **values(moving))
    return run


class ZeroInitDeadlock(Rule):
    """Two factors of a product both start at zero, so that neither ever gets a gradient.

    What it means
        The gradient of each factor of a product is multiplied by the other one. Where both are zero, as both matrices
        of a LoRA adapter or a gate of zero before a zero-initialised layer, both gradients are exactly zero, and stay
        so: on every step and in every format.

    Why it matters
        The adapter or branch is there, costs memory and time, and never learns. The rest of the model may train, so
        that nothing else shows it.

    How to fix
        Start one of the two at random: LoRA's A, or the branch behind a gate of zero. One factor of zero is enough for
        the product to be zero at the start.

    Not to be mistaken for
        One factor of zero, as LoRA's B or the last layer of a residual branch: it has a gradient from the first step
        on, and the other factor from the second. A branch that the loss does not use. Gradients that FP16 flushes.
    """

    code = "AMP704"
    name = "zero-init-deadlock"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    HEALTHY = (
        Example("LoRA with B at zero", lambda: _run(a=1.0, moves_from=1)),
        Example("LoRA with B at zero, seen on its first step only", lambda: _run(a=1.0, steps=1)),
        Example("an adapter that the loss does not use", lambda: _run(arrives=False)),
    )
    SICK = (Example("LoRA with both at zero", _run), Example("the same in a short run", lambda: _run(steps=3)))

    def check(self, run: Run) -> Iterator[Finding]:
        found = deadlocked(run)
        if found is not None:
            yield self._finding(run, found)

    def _finding(self, run: Run, found: Deadlocked) -> Finding:
        a, b = found.locks[0].pair
        rows = [row for lock in found.locks for row in lock.pair]
        gradients = found.last.gradients
        starved = sum(r.numel for r in found.last.starved)
        share = starved / sum(r.numel for r in gradients.values())
        measured = ("weight_grad", b.module, b.slot) in compared_with_fp32(run)
        sure = measured or without_half(run)
        alone = "; the run is FP32 throughout" if sure else "; this was not compared with FP32"
        fp32 = ", in FP32 as well" if measured else alone
        pairs = counted(len(found.locks), "such pair")
        return self.finding(
            f"`{a.site}` and `{b.site}` are both zero and keep each other so: the gradient of each is the other one "
            f"times what arrives{fp32}.",
            evidence=[
                Evidence(
                    "zero_parameters", len(rows),
                    f"`{a.site}` ({a.numel} elements) and `{b.site}` ({b.numel}) are zero in every element on step "
                    f"{a.step}, and so are their gradients: {pairs}.",
                ),
                Evidence(
                    "steps_affected", len(found.steps),
                    f"So it is on all {counted(len(found.steps), 'step')} examined, from step {found.steps[0]} to step "
                    f"{found.steps[-1]}, although a gradient arrives at `{found.locks[0].arrives or 'the model'}`.",
                ),
                Evidence(
                    "zero_gradients_share", share,
                    f"The gradients of {percent(share)} of the trained parameters are exactly zero.",
                    Grade.MEASURED if measured else Grade.OBSERVED,
                ),
            ],
            fixes=[_fix(found)],
            location=Location(
                tuple(f"{r.site} (weight)" for r in rows), found.steps[0], found.steps[-1]
            ),
            confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
            grade=Grade.MEASURED if measured else Grade.OBSERVED,
        )  # fmt: skip


def _fix(found: Deadlocked) -> Fix:
    """Start one factor of each pair at random: the first matrix of it."""
    chosen = [next((row for row in lock.pair if len(row.shape) > 1), lock.pair[0]) for lock in found.locks]
    lines = [
        f'torch.nn.init.kaiming_uniform_(model.get_parameter("{row.site}"), a=5**0.5)'
        if len(row.shape) > 1
        else f'torch.nn.init.constant_(model.get_parameter("{row.site}"), 0.1)'
        for row in chosen
    ]
    return Fix(
        "Start one of the two factors at random",
        "\n".join([f"{lines[0]}  # once, before the loop", *lines[1:]]),
        "The product is still zero at the start, but the other factor has a gradient from the first step on.",
        Grade.OBSERVED,
    )
