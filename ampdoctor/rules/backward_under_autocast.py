"""The rule backward-under-autocast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment, device_type
from ampdoctor.analysis.backward.limits import LIMITS
from ampdoctor.analysis.calls.autocast_blocks import autocast_blocks
from ampdoctor.analysis.calls.backward_islands import backward_islands, backwards_in_half
from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.wording import counted, number, percent, place
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.analysis.calls.backward_islands import Island
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


def _run(
    *, autocast: str | None = "float16", gradient: int = 14, posinf: int = 0, scale: float | None = None
) -> RunBuilder:  # fmt: skip
    """A head in FP32, whose backward pass runs under autocast."""
    run = RunBuilder()
    for _ in range(2):
        run.step(loss=1e6, loss_scale=scale)
        run.tensor("body", "activation", dtype="float16", autocast="float16", exponents={0: 64})
        run.tensor("head", "activation", exponents={6: 64})
        run.call("backward", autocast=autocast, file="train.py", line=24)
        run.tensor("head", "grad_output", exponents={gradient: 64}, loss_scale=scale)
        run.tensor(
            "head", "weight_grad", slot="weight", shape=[1, 16], posinf=posinf,
            exponents={gradient: 16 - posinf}, loss_scale=scale,
        )  # fmt: skip
    return run


class BackwardUnderAutocast(Rule):
    """backward() is called inside the autocast block, and a module that was kept in FP32 pays for it.

    What it means
        Autocast decides by where an operation runs. A module that was taken out of it in the forward pass
        (`autocast(enabled=False)`) gets its matrix products cast to half after all when the backward pass runs inside
        the block: its gradients, made of FP32 values, have to fit FP16.

    Why it matters
        What was put into FP32 because it is too large or too small for FP16 overflows or vanishes on the way back:
        infinite gradients at a finite loss, or weights that stand still.

    How to fix
        Leave the autocast block before `backward()`. Autocast belongs around the forward pass and the loss; each
        backward operation then runs in the dtype of its forward one.

    Not to be mistaken for
        A backward pass inside the block of a model without an FP32 part, or in BF16: the range is the same, and no
        harm is seen (a note). Steps that a scaler skips while it looks for its scale.
    """

    code = "AMP213"
    name = "backward-under-autocast"
    severity = Severity.ERROR
    needs = ("calls",)
    after = ("autocast-stale-weight-cache",)
    thresholds = {"lost_energy": Threshold(*LIMITS["lost_energy"])}
    HEALTHY = (
        Example("outside the block", lambda: _run(autocast=None, posinf=0)),
        Example("inside, and nothing happens", _run),
        Example("inside, in BF16, with small gradients", lambda: _run(autocast="bfloat16", gradient=-40)),
    )
    SICK = (
        Example("an FP32 head gets infinite gradients", lambda: _run(posinf=3)),
        Example("the gradients of an FP32 head are flushed", lambda: _run(gradient=-30)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        inside = backwards_in_half(run)
        if not inside:
            return
        islands = backward_islands(run)
        overflowed = [i for i in islands if i.overflowed]
        if self._lasts(run, overflowed, islands):
            yield self._overflow(run, overflowed)
            return
        flushed = [i for i in islands if i.energy_lost > self.threshold("lost_energy")]
        last = islands[-1].backward.step if islands else None
        if any(i.by_twin or i.backward.step == last for i in flushed):
            yield self._flush(run, flushed)
        else:
            yield self._note(inside)

    def _lasts(self, run: Run, harmed: Sequence[Island], islands: Sequence[Island]) -> bool:
        """Whether the overflow is more than a scaler's search for its scale."""
        scales = {s.step: s.loss_scale or 1.0 for s in run.steps}
        last = islands[-1].backward.step if islands else None
        return any(i.backward.step == last or scales.get(i.backward.step, 1.0) <= 1.0 for i in harmed)

    def _overflow(self, run: Run, harmed: Sequence[Island]) -> Finding:
        case = harmed[-1]
        island = place(case.module or "model")
        row = case.weight_gradient
        bad = row.nonfinite if row is not None else 0
        step = case.backward.step
        evidence = [
            _call_evidence(case.backward),
            Evidence(
                "nonfinite_elements", bad,
                f"On step {step} {counted(bad, 'element')} of the gradient of `{row.site if row else case.module}` "
                f"{'is' if bad == 1 else 'are'} NaN or infinite.",
            ),
            Evidence(
                "largest_gradient_in", case.gradient,
                f"{island} ran in FP32, and the FP32 gradient that reached it is finite (at most "
                f"{number(case.gradient)}): FP32 would have held the result.",
            ),
            _extent(harmed),
        ]  # fmt: skip
        return self.finding(
            f"backward() runs under autocast, and the FP32 part {island} gets infinite gradients: its "
            "backward pass is cast to FP16.",
            evidence=evidence,
            fixes=_fixes(run, case.backward),
            location=_location(harmed),
        )  # fmt: skip

    def _flush(self, run: Run, harmed: Sequence[Island]) -> Finding:
        case = max(harmed, key=lambda i: i.energy_lost)
        island = place(case.module or "model")
        step, share = case.backward.step, percent(case.flushed)
        grade = Grade.MEASURED if case.by_twin or case.cast_seen else Grade.ESTIMATED
        if case.by_twin:
            text = f"On step {step} {share} of what the weight gradient of {island} has in FP32 is zero in the run."
        else:
            makes = "makes" if case.cast_seen else "has to make"
            text = f"On step {step} the cast to FP16 {makes} {share} of the FP32 gradient at {island} zero."
        evidence = [
            _call_evidence(case.backward),
            Evidence("flushed_share", case.flushed, text, grade),
            Evidence(
                "energy_lost", case.energy_lost,
                f"That takes {percent(case.energy_lost)} of its energy.", grade,
            ),
            _extent(harmed),
        ]  # fmt: skip
        return self.finding(
            f"backward() runs under autocast, and the gradients of the FP32 part {island} are flushed: its "
            "backward pass is cast to FP16.",
            evidence=evidence,
            fixes=_fixes(run, case.backward),
            location=_location(harmed),
            grade=grade,
            confidence=Confidence.HIGH if case.cast_seen and not case.by_twin else Confidence.MEDIUM,
        )

    def _note(self, inside: Sequence[CallRow]) -> Finding:
        return self.finding(
            "backward() is called inside the autocast block, without harm so far.",
            evidence=[_call_evidence(inside[0])],
            fixes=[],
            location=Location((), inside[0].step, inside[-1].step, source=source_of(inside[0])),
            severity=Severity.NOTE,
        )


def _call_evidence(call: CallRow) -> Evidence:
    source = source_of(call)
    where = f" of {source}" if source else ""
    dtype = call.autocast or "float16"
    text = f"Autocast to {title_of_dtype(dtype)} is in force around the `backward()`{where}."
    return Evidence("autocast_dtype", dtype, text)


def _extent(harmed: Sequence[Island]) -> Evidence:
    modules, steps = len({i.module for i in harmed}), len({i.backward.step for i in harmed})
    text = f"So it is with {counted(modules, 'module')} on {counted(steps, 'examined step')}."
    return Evidence("harmed_modules", modules, text)


def _location(harmed: Sequence[Island]) -> Location:
    sites = tuple(dict.fromkeys(f"{i.module or 'model'}.weight (weight_grad)" for i in harmed))
    first, last = harmed[0].backward, harmed[-1].backward
    return Location(sites[:5], first.step, last.step, source=source_of(first))


def _fixes(run: Run, call: CallRow) -> list[Fix]:
    block = next((b for b in autocast_blocks(run) if b.in_force and b.holds(call)), None)
    device = (block.enter.device_type if block is not None else None) or device_type(run)
    line = comment(block.source if block is not None else None)
    code = f"""\
with torch.autocast("{device}", dtype=torch.{call.autocast}):{line}
    loss = ...
loss.backward(){comment("one level further out", source_of(call))}"""
    return [
        Fix(
            "Leave the autocast block before backward()",
            code,
            "What ran in FP32 in the forward pass stays in FP32 on the way back.",
        )
    ]
