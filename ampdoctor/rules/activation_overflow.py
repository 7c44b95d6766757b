"""The rule activation-overflow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.cures import bf16_autocast, device_type, fp32_island
from ampdoctor.analysis.forward.birth_causes import Kind, causes
from ampdoctor.analysis.forward.forward_reach import harmed_steps, peak_before, weight_reach
from ampdoctor.analysis.forward.passes import ForwardStep, forward_steps
from ampdoctor.analysis.loss import loss_curve
from ampdoctor.analysis.twins.fp32_finite import finite_in_fp32, first_overflow, overflows_made
from ampdoctor.analysis.words.origin_report import origin_evidence, tried, twin_evidence
from ampdoctor.analysis.words.overflow_report import birth_evidence, where_born, where_made
from ampdoctor.finding import Confidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.formats import FP16
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.forward.operations import Origin
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import StepRow, TensorRow


def _run(loss: float = math.nan, *, slot: str = "out", dtype: str = "float16", **birth: int) -> RunBuilder:
    """Four steps of a model whose module `down` (or its input) holds what `birth` says beside large finite values."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for _ in range(4):
        run.step(loss=loss, loss_scale=65536.0, found_inf=math.isnan(loss), applied=not math.isnan(loss))
        run.tensor("up", "activation", dtype="float16", exponents={10: 90, 12: 10}, inputs_finite=True)
        finite = None if slot == "in" else True
        values = {13: 40, 15: 30} if dtype == "float16" else {13: 40, 18: 30}
        run.tensor("down", "activation", slot=slot, dtype=dtype, exponents=values, inputs_finite=finite, **birth)
    return run


def _mask() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for _ in range(4):
        run.step(loss=2.3)
        run.tensor("softmax", "activation", slot="in", dtype="float16", exponents={1: 50}, neginf=45)
    return run


def _diverged() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for loss in (1.2, 230.0, 1.3e8):
        run.step(loss=loss).tensor("up", "activation", dtype="float16", exponents={10: 90}, inputs_finite=True)
    run.step(loss=math.nan)
    return run.tensor("up", "activation", dtype="float16", exponents={15: 90}, posinf=9, inputs_finite=True)


def _bad_data() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for loss in (2.3, math.nan, 2.2):
        bad = 1 if math.isnan(loss) else 0
        run.step(loss=loss, found_inf=bool(bad))
        run.tensor("up", "activation", slot="in", exponents={0: 99}, nan=bad)
        run.tensor("up", "activation", dtype="float16", exponents={0: 99}, nan=bad, inputs_finite=not bad)
    return run


def _division_by_zero() -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    half: dict[str, Any] = {"dtype": "float16", "inputs_finite": True}
    for _ in range(4):
        run.step(loss=math.nan, found_inf=True, applied=False)
        run.tensor("up", "activation", exponents={0: 90}, **half)
        run.tensor("norm", "weight", slot="weight", exponents={0: 90})
        run.tensor("norm", "activation", exponents={-1: 90}, posinf=3, **half)
    return run


def _twinned(run: RunBuilder, born_fp32: int, **where: Any) -> RunBuilder:
    """Give the last step of `run` local twins, in which the square in `down` is the first not to be finite."""
    born = {"born": 30, "born_fp32": born_fp32, "first_born": 7, "overflowed": 30 - born_fp32}
    run.twin_step(kind="local").op("aten.mm", "up", **where)
    return run.op("aten.pow", "down", file="train.py", line=41, absmax=2.5e5, **born, **where)


def _inside_a_module() -> RunBuilder:
    """The step itself was not examined; it was computed again."""
    run = RunBuilder(device="cuda: NVIDIA A100").step(loss=2.3)
    run.tensor("down", "activation", dtype="float16", exponents={3: 90}, inputs_finite=True)
    return _twinned(run.step(loss=math.nan, examined=False), 0, source="replay")


class ActivationOverflow(Rule):
    """An activation passes FP16's 65504 and becomes infinite: loss and gradients are NaN from there on.

    What it means
        A value of the forward pass is too large for FP16, which ends at 65504, while everything that goes into it is
        finite. The next normalisation or subtraction makes NaN of the infinity. FP32 and BF16 hold values up to 3e38.

    Why it matters
        With a GradScaler every such step is skipped and the scale falls for nothing. Without one the NaN reaches the
        weights, and the model is lost.

    How to fix
        Run that module in FP32 (autocast off around it, its input cast with `.float()`), or use BF16. Clamping to
        65504 helps where only a few values are beyond. A lower loss scale is useless: the loss scale has no part in
        the forward pass.

    Not to be mistaken for
        The -inf of an attention mask. Large values in a module that runs in FP32 on purpose. Weights or data that hold
        NaN already. A division by zero, or by an epsilon that FP16 makes zero, among small values. A run whose loss
        had grown by orders of magnitude before: it diverged, in FP32 it would too. A step that was computed in FP32 as
        well, and is not finite there either.
    """

    code = "AMP201"
    name = "activation-overflow"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    after = (
        "attention-overflow", "norm-overflow", "loss-overflow", "mask-constant-overflow", "eps-underflow",
        "buffer-poisoned-by-overflow", "log-of-zero-underflow", "cancellation-half", "scaler-bypassed",
        "optimizer-stepped-twice", "gradient-penalty-scaled",
    )  # fmt: skip
    thresholds = {
        "steps_error": Threshold(3, "three such steps are no accident of one batch"),
        "large_value": Threshold(256, "sqrt(65504): products of two such values overflow"),
        "near_max": Threshold(
            4, "finite values within two binades of 65504 are the ordinary end of a tensor that passes it"
        ),
        "diverged": Threshold(100, "a loss this many times its start diverges by itself"),
    }
    HEALTHY = (
        Example("the -inf of a causal mask", _mask),
        Example("an infinity that harms nothing", lambda: _run(2.3, posinf=30)),
        Example("values above 65504 in an FP32 island", lambda: _run(2.3, dtype="float32")),
        Example("a diverging loss", _diverged),
        Example("NaN in the data", _bad_data),
        Example("a division by zero in a norm of small values", _division_by_zero),
        Example("FP32 is not finite there either", lambda: _twinned(_run(posinf=20), 30)),
    )
    SICK = (
        Example("the output of a projection", lambda: _run(posinf=20, neginf=10)),
        Example("an operation between two modules", lambda: _run(slot="in", posinf=30)),
        Example("NaN out of an operation between two modules", lambda: _run(slot="in", nan=30)),
        Example("an operation that overflows where FP32 is finite", _inside_a_module),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        known = {s for s, c in causes(run).items() if c.kind is not Kind.ACTIVATION}
        if known and known >= causes(run).keys():
            return  # what is seen of other steps is the same again
        harmed = {s: harm for s, harm in harmed_steps(run).items() if s not in known}
        births = self._births(run, harmed)
        made = self._made(run, harmed)
        first = min((f.row.step for f in births), default=None)
        if made and (first is None or made[0].row.step < first):
            yield self._by_operation(run, made, harmed[made[0].row.step])
        elif births and births[0].birth is not None:
            yield self._finding(run, births, births[0].birth, harmed[births[0].row.step])

    def _births(self, run: Run, harmed: dict[int, str]) -> list[ForwardStep]:
        """Return the harmed steps on which an activation is the first to overflow, those left out that FP32 shares."""
        candidates = [
            (f, f.birth, finite_in_fp32(run, f.row.step))
            for f in forward_steps(run)
            if f.birth is not None and f.row.step in harmed and f.weights_finite
        ]
        shared = {birth.site for _, birth, finite in candidates if finite is False}
        return [
            f
            for f, birth, finite in candidates
            if finite is not False
            and (finite or birth.site not in shared)
            and (first_overflow(run, f.row.step, "forward") or self._born_here(run, f, birth))
            and not self._diverged(run, f.row.step)
        ]

    def _made(self, run: Run, harmed: dict[int, str]) -> list[Origin]:
        """Return the operations that overflow first on harmed steps, as local twins saw them on any step."""
        return overflows_made(run, [s for s in harmed if not self._diverged(run, s)], "forward")

    def _diverged(self, run: Run, step: int) -> bool:
        return loss_curve(run).growth_before(step) >= self.threshold("diverged")

    def _born_here(self, run: Run, step: ForwardStep, birth: TensorRow) -> bool:
        """Whether the first nonfinite value is an overflow of FP16 and not, say, a division by zero.

        An infinity comes out of finite values by overflow only where these are large, or where the weights make a sum
        of their products so.
        """
        if birth.dtype != "float16" or (birth.inputs_finite is False):
            return False
        largest = max((r.absmax for r in step.activations), default=0.0)
        if max(peak_before(run, birth), largest) >= self.threshold("large_value"):
            return True
        return birth.slot.startswith("out") and largest * weight_reach(run, birth) >= FP16.max

    def _finding(self, run: Run, births: list[ForwardStep], birth: TensorRow, harm: str) -> Finding:
        first, steps = births[0], len(births)
        where = where_born(birth, first)
        near = peak_before(run, birth) * self.threshold("near_max") >= FP16.max
        seen = birth.posinf + birth.neginf > 0 and near
        origin = first_overflow(run, first.row.step, "forward")
        measured = origin is not None or finite_in_fp32(run, first.row.step) is True
        return self.finding(
            f"An activation overflows FP16 {where}: values beyond 65504 become infinite, and {harm}.",
            evidence=[
                *birth_evidence(run, first, birth, steps),
                *(origin_evidence(run, origin) if origin else ()),
                *twin_evidence(run, first.row.step),
            ],
            fixes=_fixes(run, birth.module if birth.slot.startswith("out") else None, where, birth.step),
            location=Location(
                (f"{birth.site} (activation)",),
                first.row.step,
                births[-1].row.step,
                source=origin.source if origin else None,
            ),
            confidence=Confidence.HIGH if seen or measured else Confidence.MEDIUM,
            grade=Grade.MEASURED if measured else Grade.OBSERVED,
            severity=self._severity(run, first.row, steps),
        )

    def _by_operation(self, run: Run, made: list[Origin], harm: str) -> Finding:
        """The finding where no tensor between modules shows it: on a step computed again, or inside a module."""
        first = made[0]
        step = next(s for s in run.steps if s.step == first.row.step)
        where = where_made(first)
        return self.finding(
            f"An activation overflows FP16 {where}: values beyond 65504 become infinite, and {harm}.",
            evidence=[*origin_evidence(run, first), *twin_evidence(run, step.step)],
            fixes=_fixes(run, first.row.module or None, where, step.step),
            location=Location(
                (f"{first.row.module or first.row.op} (activation)",), step.step, made[-1].row.step, source=first.source
            ),
            grade=Grade.MEASURED,
            severity=self._severity(run, step, len(made)),
        )

    def _severity(self, run: Run, first: StepRow, steps: int) -> Severity:
        """One batch that a scaler skips is not yet a fault of the run."""
        lasting = steps >= self.threshold("steps_error") or first is run.steps[-1] or not first.found_inf
        return Severity.ERROR if lasting else Severity.WARNING


def _fixes(run: Run, module: str | None, where: str, step: int) -> list[Fix]:
    block = f"""\
with torch.autocast("{device_type(run)}", enabled=False):
    h = h.float()  # and what is computed {where}"""
    own = "FP32 holds values up to 3e38; the rest stays in FP16. Mind that the next FP16 module casts its input back."
    island = Fix(f"Compute in FP32 {where}", block, own) if module is None else fp32_island(run, module, own)
    clamp = "h = h.clamp(-65504, 65504)  # torch.finfo(torch.float16).max"
    return [
        island,
        tried(run, step, "bf16", bf16_autocast(run, "BF16 has FP32's range: values up to 3e38.")),
        Fix("Clamp to FP16's range", clamp, f"Infinities {where} become 65504; right where few values are beyond it."),
    ]
