"""The rule gradient-penalty-scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment
from ampdoctor.analysis.calls.order import calls_in_order, source_of
from ampdoctor.analysis.wording import counted, number, scale_text
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


def _run(*, undivided: bool | None, norm: float | None = 8e5, kind: str = "grad") -> RunBuilder:
    """Two steps with a gradient penalty, whose gradients are divided or not."""
    run = RunBuilder()
    for _ in range(2):
        run.step(loss=3e9 if undivided else 2.0, loss_scale=65536.0)
        run.call(kind, scaled="all", norm=norm, file="train.py", line=30)
        run.call("backward", scaled="all", penalty_undivided=undivided, file="train.py", line=33)
        run.call("scaler_step", target="optimizer0")
    return run


@dataclass(frozen=True)
class _Case:
    """A loss that holds a penalty of scaled gradients: the pass that made them, and that of the loss."""

    made: CallRow
    loss: CallRow
    scale: float


class GradientPenaltyScaled(Rule):
    """A gradient penalty is computed from gradients that are still multiplied by the loss scale.

    What it means
        `torch.autograd.grad(scaler.scale(loss), …, create_graph=True)` returns gradients that are larger by the scale.
        A penalty made of them as they are, a norm for instance, is larger by the scale too, or by its square.

    Why it matters
        The penalty drowns the loss, by factors of thousands or millions. It overflows in the backward pass, so that
        steps are skipped and the scale falls; where it gets through, the weights follow the penalty alone.

    How to fix
        Divide the gradients by `scaler.get_scale()` before the penalty is computed. Scale the whole loss, with the
        penalty, once for the backward pass.

    Not to be mistaken for
        Gradients of a loss that is not scaled. Gradients, or their norm, that are divided by the scale afterwards. A
        second derivative that does not enter a loss.
    """

    code = "AMP412"
    name = "gradient-penalty-scaled"
    severity = Severity.ERROR
    needs = ("calls",)
    HEALTHY = (
        Example("divided by the scale", lambda: _run(undivided=False)),
        Example("no penalty", lambda: _run(undivided=None)),
    )
    SICK = (
        Example("as they come from autograd.grad", lambda: _run(undivided=True)),
        Example("their size is not known", lambda: _run(undivided=True, norm=None)),
        Example("from .grad, after backward(create_graph=True)", lambda: _run(undivided=True, kind="backward")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found: dict[tuple[str | None, int | None], list[_Case]] = {}
        for case in _cases(run):
            found.setdefault((case.made.file, case.made.line), []).append(case)
        for cases in found.values():
            yield self._finding(run, cases)

    def _finding(self, run: Run, cases: list[_Case]) -> Finding:
        first, last = cases[0], cases[-1]
        scale, source = first.scale, source_of(first.made)
        evidence = [
            Evidence(
                "loss_scale", scale,
                f"The gradients are those of a loss multiplied by {scale_text(scale)}, and no code divides them by it "
                "on their way into the penalty.",
            ),
            Evidence("steps", len(cases), f"So it is on {counted(len(cases), 'examined step')}."),
        ]  # fmt: skip
        norm = first.made.norm if first.made.call == "grad" else None
        if norm is not None:
            true = number(norm / scale)
            text = f"On step {first.made.step} their norm is {number(norm)}; without the scale it is {true}."
            evidence.append(Evidence("scaled_norm", norm, text))
        loss = next((s.loss for s in run.steps if s.step == first.loss.step), None)
        if loss is not None:
            evidence.append(Evidence("loss", loss, f"The loss with the penalty in it is {number(loss)} on that step."))
        return self.finding(
            "A gradient penalty is made of gradients that are still multiplied by the loss scale of "
            f"{scale_text(scale)}.",
            evidence=evidence,
            fixes=[_fix(source, source_of(first.loss))],
            location=Location((), first.loss.step, last.loss.step, source=source),
        )


def _cases(run: Run) -> Iterator[_Case]:
    scales = {s.step: s.loss_scale for s in run.steps}
    passes: list[CallRow] = []
    for call in calls_in_order(run):
        if call.call not in {"grad", "backward"} or call.error is not None:
            continue
        if call.penalty_undivided:
            scale = scales.get(call.step)
            made = _maker(passes, call)
            if scale not in {None, 1.0} and made is not None:
                yield _Case(made, call, scale or 1.0)
        passes = [*passes[-7:], call]


def _maker(passes: list[CallRow], loss: CallRow) -> CallRow | None:
    """Return the pass of a scaled loss that made the gradients; one of `autograd.grad` where there was one."""
    before = [c for c in passes if c.step == loss.step and c.scaled in {"all", "some"}]
    return next((c for c in reversed(before) if c.call == "grad"), before[-1] if before else None)


def _fix(source: str | None, backward: str | None) -> Fix:
    code = f"""\
scaled = torch.autograd.grad(scaler.scale(loss), inputs, create_graph=True){comment(source)}
gradients = [g / scaler.get_scale() for g in scaled]  # add this line
penalty = sum(g.float().square().sum() for g in gradients).sqrt()  # as before, of these
scaler.scale(loss + penalty).backward(){comment(backward)}"""
    expected = "The penalty is that of the true gradients, whatever the scale."
    return Fix("Divide by the scale before the penalty", code, expected, Grade.OBSERVED)
