"""The rule gradient-underflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.choosing import Cure
from ampdoctor.analysis.advice.cures import bf16_autocast, device_type, dynamic_scaler, fp32_island
from ampdoctor.analysis.advice.measured_fixes import with_measured
from ampdoctor.analysis.backward.gradients import fp16_gradients_missing
from ampdoctor.analysis.backward.limits import LIMITS, Limits
from ampdoctor.analysis.backward.materiality import materiality
from ampdoctor.analysis.backward.vanishing import Vanishing, vanishing
from ampdoctor.analysis.backward.vanishing_case import VanishingCase, lasting_case
from ampdoctor.analysis.calls.scaling import LossScaling, ScalingKind, loss_scaling
from ampdoctor.analysis.wording import number, percent, place
from ampdoctor.analysis.words.measured_report import measured_evidence, measured_location, what_measured
from ampdoctor.analysis.words.range_report import expected_at_suggested, no_range_evidence, range_evidence, without_room
from ampdoctor.analysis.words.vanishing_report import grade_of
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.backward.scale_range import ScaleRange
    from ampdoctor.trace.run import Run


def _run(cast: dict[int, int], out: dict[int, int], zeros: int, loss: float = 0.9) -> RunBuilder:
    """Six steps of a two-layer model in FP16 without a scaler; `loss` is the factor per step."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for step in range(6):
        run.step(loss=2.3 * loss**step).call("backward", scaled="none", factor=1.0)
        run.tensor("head", "grad_output", slot="cast", cast_to="float16", exponents=cast)
        run.tensor("head", "grad_output", dtype="float16", exponents=out, zeros=zeros)
        run.tensor("body", "grad_output", dtype="float16", exponents=out, zeros=zeros)
        run.tensor("head", "weight_grad", slot="weight", exponents=out, zeros=zeros, shape=[100, 100])
    return run


def _collapsed() -> RunBuilder:
    return _run({-30: 2000, -29: 3000, -28: 3000, -27: 1500, -26: 450, -25: 50}, {-24: 50}, 9950, 0.999)


def _no_cast_and_nothing_left() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for _ in range(4):
        run.step(loss=2.3).tensor("head", "grad_output", dtype="float16", exponents={-24: 300, -23: 40}, zeros=9660)
        for layer in ("2", "1", "0"):
            run.tensor(f"body.{layer}", "grad_output", dtype="float16", zeros=10000)
            run.tensor(f"body.{layer}", "weight_grad", slot="weight", zeros=10000, shape=[100, 100])
    return run


def _healthy() -> RunBuilder:
    return _run({-12: 2000, -11: 5000, -10: 3000}, {-12: 2000, -11: 5000, -10: 3000}, 0)


def _harmless_tail() -> RunBuilder:
    """A third of the elements flush, and hold a millionth of the energy."""
    spread = dict.fromkeys(range(-24, -9), 300)
    return _run(spread | {-27: 1500, -26: 1500}, spread, 3000)


def _twin(run: RunBuilder, flushed: int, cosine: float, lost: float, **whole: float) -> RunBuilder:
    """Give the last step of `run` an FP32 twin, beside which so much of the gradient is flushed."""
    columns = {"flushed": flushed, "cosine": cosine, "norm_ratio": cosine, "energy_lost": lost}
    run.twin_step("fp32").twin("run", "head", "weight_grad", shape=[10, 10], **columns)
    return run.twin("run", "", "gradient", **(columns | whole))


def _converged() -> RunBuilder:
    """The loss falls to a thousandth of its start, and the gradients with it."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for step in range(12):
        top = -10 - 2 * step
        alive = {e: 2000 for e in range(top - 4, top + 1) if e >= -24}
        zeros = 10000 - sum(alive.values())
        run.step(loss=2.3 * 4.0 ** -min(step, 6)).call("backward", scaled="none", factor=1.0)
        run.tensor("head", "grad_output", dtype="float16", exponents=alive, zeros=zeros)
    return run


def _structural_zeros() -> RunBuilder:
    """ReLU, dropout 0.9, and a branch behind a zero-initialised layer."""
    run = _run({-12: 2000, -11: 5000, -10: 3000}, {-12: 200, -11: 500, -10: 300}, 9000)
    return run.tensor("branch", "grad_output", dtype="float16", zeros=10000)


class GradientUnderflow(Rule):
    """Gradients vanish in FP16, because nothing scales the loss or because no loss scale could hold them.

    What it means
        The smallest number that FP16 knows is 2^-24, and what is at or below 2^-25 becomes zero. Gradients of a loss
        that is averaged over a batch are often that small. Without loss scaling they are flushed to zero on their way
        back through the model, and the weights behind them stand still.

    Why it matters
        There is no error and no NaN: the loss flattens early, far above where FP32 or BF16 would take it, and looks
        like a model that can't learn more.

    How to fix
        Multiply the loss before backward and divide the gradients after it: `torch.amp.GradScaler` does both, finds
        the factor by itself and skips the steps on which it was too large. Or use BF16, which has FP32's range and
        needs no scaling. Where the gradients span more powers of two than FP16 has, only BF16 or FP32 for some modules
        helps.

    Not to be mistaken for
        Zeros that the model makes in every format: ReLU, dropout, unused embedding rows, LoRA's and zero-initialised
        branches' first step, frozen layers. They leave the rest of the gradient far above FP16's edge. A tail that
        flushes but holds next to no energy changes no update. A run that has converged has small gradients by right.
        Where a step was computed in FP32 as well (a twin step), the direction and length of the gradient beside that
        of FP32 decide, and not what is estimated: a cosine of 0.999 is no fault, however much is flushed. One step at
        the very start decides with less confidence than two, or than one that the estimate of later steps agrees with.
    """

    code = "AMP101"
    name = "gradient-underflow"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    after = (
        "activation-overflow", "norm-overflow", "scale-collapse", "vanishing-gradient", "dead-units",
        "zero-init-deadlock", "scaler-disabled", "comm-hook-underflow",
    )  # fmt: skip
    thresholds = {name: Threshold(value, source) for name, (value, source) in LIMITS.items()} | {
        "tail_flushed": Threshold(0.1, "one element in ten: the edge is near, though what flushes does not matter yet")
    }
    HEALTHY = (
        Example("gradients far above the edge", _healthy),
        Example("a flushed tail that holds no energy", _harmless_tail),
        Example("a converged run", _converged),
        Example("zeros by ReLU, dropout and zero initialisation", _structural_zeros),
        Example("measured: flushed, and harmless", lambda: _twin(_collapsed(), 40, 0.9997, 6e-4)),
        Example("measured: all zeros are the model's own", lambda: _twin(_collapsed(), 0, 1.0, 0.0)),
    )
    SICK = (
        Example("the loss's gradient is flushed at its cast to FP16", _collapsed),
        Example("nothing left below the head", _no_cast_and_nothing_left),
        Example("measured: hurt, where nothing shows", lambda: _twin(_healthy(), 18, 0.71, 0.4)),
    )

    def lacks(self, run: Run) -> list[str]:
        return run.missing(self.needs) or fp16_gradients_missing(run)

    def check(self, run: Run) -> Iterator[Finding]:
        limits = Limits(**{name: self.threshold(name) for name in LIMITS})
        case = lasting_case(run, limits)
        scaling = loss_scaling(run)
        unscaled = scaling.kind in {ScalingKind.NONE, ScalingKind.DISABLED}
        if case is not None:
            if unscaled or not case.scales.has_room:
                yield self._fault(run, case)
            return
        found = vanishing(run, limits)
        if unscaled and found is not None and not found.hurt:
            yield from self._tail(run, found, scaling, limits)

    def _fault(self, run: Run, case: VanishingCase) -> Finding:
        scales, scaling = case.scales, case.scaling
        room = scales.has_room
        how = f"with {scaling.phrase}" if room else without_room(scales)
        reason = range_evidence(scales) if room else no_range_evidence(scales)
        fixes = _fixes(run, scaling, scales) if room else _fixes_without_room(run, scales)
        return self.finding(
            case.summary(how),
            evidence=[*case.evidence, *_factor_evidence(scaling), *([] if case.harmless else reason)],
            fixes=[] if case.harmless else fixes,
            **case.verdict,
        )

    def _tail(self, run: Run, found: Vanishing, scaling: LossScaling, limits: Limits) -> Iterator[Finding]:
        """What flushes without harm: as a twin measured it, else as it is estimated."""
        told = materiality(run, found, limits)
        if told is not None and told.harmless:
            if told.own.flushed >= self.threshold("tail_flushed"):
                yield self.finding(
                    f"Harmless underflow with {scaling.phrase}: {what_measured(told)}.",
                    evidence=measured_evidence(run, told),
                    fixes=[],
                    location=measured_location(told),
                    confidence=told.confidence,
                    grade=Grade.MEASURED,
                    severity=Severity.NOTE,
                )
            return
        site = max(found.last.all_sites, key=lambda s: s.flushed)
        if site.flushed < self.threshold("tail_flushed") or site.lost == 1.0:
            return
        step = found.last.row.step
        text = (
            f"On step {step} FP16 flushes {percent(site.flushed)} of the nonzero elements of the gradient at "
            f"{place(site.name)}, which hold {percent(site.lost)} of its energy."
        )
        yield self.finding(
            f"FP16 gradients are near the edge with {scaling.phrase}, without harm so far.",
            evidence=[Evidence("flushed_share", site.flushed, text, grade_of(site))],
            fixes=[],
            location=Location((f"{site.row.site} ({site.row.role})",), step, step),
            grade=grade_of(site),
            severity=Severity.NOTE,
        )


def _factor_evidence(scaling: LossScaling) -> list[Evidence]:
    if scaling.factor >= 1.0 or scaling.factor <= 0.0:
        return []
    text = f"The loss is multiplied by {number(scaling.factor)} in code, which makes every gradient that much smaller."
    return [Evidence("loss_factor", scaling.factor, text)]


def _fixes(run: Run, scaling: LossScaling, scales: ScaleRange) -> list[Fix]:
    bf16 = bf16_autocast(run, "Gradients keep FP32's range unscaled.")
    if scales.suggested is None:
        return with_measured(run, [bf16])
    expected = f"{expected_at_suggested(scales)}; the scaler divides the gradients again before the optimizer's step."
    scaler, own = dynamic_scaler(run, scales.suggested, expected), {}
    if scaling.kind is ScalingKind.DISABLED:
        code = f'scaler = torch.amp.GradScaler("{device_type(run)}", enabled=True)'
        scaler = Fix("Enable the GradScaler that the script has", code, expected, Grade.ESTIMATED)
        own = {Cure.DYNAMIC_SCALE: scaler}
    return with_measured(run, [scaler, bf16] if scales.lost is not None else [bf16, scaler], own)


def _fixes_without_room(run: Run, scales: ScaleRange) -> list[Fix]:
    fixes = [
        bf16_autocast(run, "Gradients keep FP32's range, which holds both ends."),
        fp32_island(
            run,
            scales.smallest_module,
            "The gradients of the module with the smallest ones no longer pass through FP16.",
        ),
    ]
    return with_measured(run, fixes)
