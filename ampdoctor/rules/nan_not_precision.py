"""The rule nan-not-precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.nan_cures import clip, find_bad_samples, guard, load_again, look_at_the_batch, lower_lr
from ampdoctor.analysis.broken_losses import broken_losses
from ampdoctor.analysis.divergence import divergence
from ampdoctor.analysis.forward.from_outside import bad_inputs, bad_weights
from ampdoctor.analysis.forward.nan_births import EMPTY, kind_of
from ampdoctor.analysis.forward.undefined_losses import undefined_loss
from ampdoctor.analysis.twins.fp32_reference import fp32_name
from ampdoctor.analysis.twins.shared_with_fp32 import shared_births, shared_steps, without_half
from ampdoctor.analysis.wording import counted, number
from ampdoctor.analysis.words.nan_report import as_in_fp32, divergence_evidence, input_evidence, place_of
from ampdoctor.analysis.words.origin_report import origin_evidence, twin_evidence
from ampdoctor.finding import Confidence, Evidence, Finding, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


def _run(*losses: float, dtype: str = "float16", bad: bool = False, scaler: bool = True) -> RunBuilder:
    """A run with these losses, whose steps with a NaN are skipped; `bad`: the NaN came in with the data."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for loss in losses:
        broken = not math.isfinite(loss)
        run.step(loss=loss, lr=0.1, found_inf=broken and scaler, applied=not (broken and scaler))
        run.tensor("", "activation", slot="in", exponents={0: 99}, nan=int(broken and bad))
        run.tensor("up", "weight", slot="weight", exponents={-3: 100})
        nan = 9 if broken and bad else 0
        run.tensor("up", "activation", dtype=dtype, exponents={0: 90}, inputs_finite=not nan, nan=nan)
    return run


def _recurring() -> RunBuilder:
    return _run(*[2.3, math.nan, 2.2, 2.1] * 4, bad=True)


def _twinned(run: RunBuilder, in_fp32: int, op: str = "aten.div") -> RunBuilder:
    """Give the last step of `run`, which is not finite, twins: so many of 30 values are not finite in FP32 either."""
    run.twin_step("fp32").op(op, "pool", file="train.py", line=41, born=30, born_fp32=in_fp32, first_born=7)
    whole = {"nonfinite": 100, "nonfinite_fp32": in_fp32, "overflowed": 30 - in_fp32}
    run.twin("run", "", "loss", **whole, value=math.nan)
    return run.twin("run", "", "gradient", **whole, cosine=None, norm_ratio=None)


def _by_hand(undefined: str, then: tuple[float, ...] = (math.nan,)) -> RunBuilder:
    """Nothing is seen to break but the loss, by the operation `undefined`, before the losses `then`."""
    run = _run(2.3, math.nan, dtype="bfloat16", scaler=False)
    run.call("backward", undefined=undefined, file="train.py", line=17)
    for loss in then:
        run.step(loss=loss, lr=0.1)
    return run


def _overflow() -> RunBuilder:
    run = _run(2.3, 2.2)
    for _ in range(4):
        run.step(loss=math.nan, found_inf=True, applied=False)
        run.tensor("up", "activation", dtype="float16", exponents={15: 90}, posinf=9, inputs_finite=True)
    return run


class NanNotPrecision(Rule):
    """The loss is NaN or runs away, and would do so in FP32: precision is not the cause.

    What it means
        What looks like an overflow of FP16 has another cause: the learning rate is too high and the loss grows by
        orders of magnitude until no format holds it, a NaN comes in with the data or lies in the weights, or the code
        computes something that is not defined in any format: a mean over an empty mask, a softmax over a fully masked
        row, the logarithm of zero.

    Why it matters
        Time spent on loss scales, BF16 or FP32 modules is lost, for none of them helps. A GradScaler hides such steps
        by skipping them; without one, in FP32 as well, the first of them destroys the weights.

    How to fix
        Lower the learning rate, warm it up and clip the gradients where the loss ran away. Look for the samples that
        are not finite where the data is to blame. Guard the operation that is named: clamp the size of the mask, leave
        out fully masked rows, keep logarithms and roots away from zero.

    Not to be mistaken for
        An activation that passes 65504, or an epsilon that FP16 makes zero: the same step is finite in FP32. The
        scaler's calibration, which skips steps while the loss stays where it is. A single batch that made the loss
        jump and was skipped. Gradients applied with their loss scale, by hand or by a stray optimizer step: they make
        the loss run away too, and are told first.
    """

    code = "AMP701"
    name = "nan-not-precision"
    severity = Severity.ERROR
    needs = ("steps",)
    after = (
        "scaler-bypassed", "optimizer-stepped-twice", "loss-scale-too-large", "adam-eps-underflow",
        "gradient-penalty-scaled", "scaler-update-mid-iteration", "accum-unscale-mixed", "stale-inf-grads",
        "scaler-state-not-restored",
    )  # fmt: skip
    thresholds = {
        "diverged": Threshold(100, "two orders of magnitude: batches differ by a factor of a few"),
        "update": Threshold(10, "an update of ten times all the weights together leaves nothing of what was learned"),
    }
    HEALTHY = (
        Example("finite losses", lambda: _run(2.3, 2.2, 2.1)),
        Example("an overflow of FP16", _overflow),
        Example("measured: FP32 is finite", lambda: _twinned(_run(2.3, math.nan), 0)),
        Example("a batch that made the loss jump", lambda: _run(1.0, 1.1, 300.0, math.nan, 0.9)),
        Example(
            "the scaler's calibration",
            lambda: RunBuilder().step(loss=2.3, found_inf=True, applied=False).step(loss=2.3),
        ),
    )
    SICK = (
        Example("a loss that ran away in FP16", lambda: _run(1.2, 2.5, 231.0, 1.3e8, math.nan)),
        Example(
            "a loss that ran away in FP32", lambda: _run(1.2, 9.0, 4e4, 1e20, math.nan, dtype="float32", scaler=False)
        ),
        Example("NaN in the data, every fourth batch", _recurring),
        Example("an empty mask, in FP32 as well", lambda: _twinned(_run(2.3, math.nan), 30)),
        Example("a fully masked row", lambda: _twinned(_run(2.3, math.nan), 30, "aten._softmax")),
        Example("an empty mask that the loss alone divides by", lambda: _by_hand("div")),
        Example("all targets ignored on one batch", lambda: _by_hand("nll_loss", then=(2.2, 2.1))),
        Example("out of nowhere in FP32", lambda: _run(2.3, 2.2, math.nan, math.nan, dtype="float32", scaler=False)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found = (
            self._weights(run)
            or self._data(run)
            or self._diverged(run)
            or self._operation(run)
            or self._made_by_loss(run)
            or self._unknown(run)
        )
        if found is not None:
            yield found

    def _severity(self, run: Run) -> Severity:
        """A batch now and then that a scaler skips harms less than a run that is lost."""
        last = run.steps[-1]
        lost = broken_losses(run).lasting or bool(last.found_inf)
        return Severity.ERROR if lost else Severity.WARNING

    def _weights(self, run: Run) -> Finding | None:
        rows = bad_weights(run)
        if not rows:
            return None
        row = rows[0]
        text = (
            f"On step {row.step}, before any update, {row.nonfinite} of {row.numel} elements of `{row.site}` are NaN "
            "or infinite."
        )
        return self.finding(
            f"The model starts with weights that are not finite, in `{row.site}`: it was built or loaded so, in "
            "whatever precision.",
            evidence=[
                Evidence("nonfinite_elements", row.nonfinite, text),
                Evidence("tensors_affected", len(rows), f"So it is in {counted(len(rows), 'parameter')}."),
            ],
            fixes=load_again(rows[0]),
            location=Location(tuple(f"{r.site} (weight)" for r in rows), row.step, run.steps[-1].step),
        )  # fmt: skip

    def _data(self, run: Run) -> Finding | None:
        found, broken = bad_inputs(run), broken_losses(run)
        steps = [step.row.step for step, _ in found]
        if not found or not {*broken.steps, *(s.step for s in run.steps if s.found_inf)} & {*steps}:
            return None
        birth = found[0][1]
        every = f", every {broken.every} steps" if broken.every else ""
        return self.finding(
            f"The data holds NaN or infinities{every}: {counted(birth.nonfinite, 'value')} of what is handed to "
            f"{place_of(birth.module)} on step {birth.step} {'is' if birth.nonfinite == 1 else 'are'} not finite, "
            "before anything is computed in half.",
            evidence=[*input_evidence(found), *broken.evidence(), *twin_evidence(run, birth.step)],
            fixes=find_bad_samples(run, broken.every),
            location=Location(
                (f"{birth.site} (activation)",), min([*steps, *broken.steps[:1]]), max([*steps, *broken.steps[-1:]])
            ),
            severity=self._severity(run),
        )

    def _diverged(self, run: Run) -> Finding | None:
        found = divergence(run, self.threshold("diverged"), self.threshold("update"))
        if found is None:
            return None
        if found.start is not None and found.peak is not None:
            whose = f" in {fp32_name(run)}, where step {found.in_fp32} is finite" if found.in_fp32 else ""
            how = (
                f"The loss runs away from step {found.began} on, from {number(found.start)} to {number(found.peak)}"
                f"{whose}, before anything is NaN"
            )
        else:
            how = (
                f"The update of step {found.began} is {number(found.update or 0.0)} times as large as all the weights "
                "together, and nothing is finite after it"
            )
        return self.finding(
            f"{how}: the learning rate is too high{as_in_fp32(run, found)}.",
            evidence=divergence_evidence(run, found),
            fixes=[lower_lr(run), clip(run)],
            location=Location((), found.began, run.steps[-1].step),
            confidence=Confidence.HIGH if without_half(run) or found.in_fp32 else Confidence.MEDIUM,
            grade=Grade.MEASURED if found.in_fp32 else Grade.OBSERVED,
        )

    def _operation(self, run: Run) -> Finding | None:
        """What FP32 shares, by the operation that makes it; without one it was handed to the loss from outside."""
        broken = broken_losses(run)
        for step in shared_steps(run):
            births = shared_births(run, step)
            if births:
                return self._born(run, step)
            if step in broken.steps and undefined_loss(run) is None:
                return self._from_targets(run, step)
        return None

    def _born(self, run: Run, step: int) -> Finding:
        broken, origin = broken_losses(run), shared_births(run, step)[0]
        kind = kind_of(origin)
        every = f", every {broken.every} steps" if broken.every else ""
        return self.finding(
            f"NaN out of {kind.what}{every}: {origin.phrase}, is not finite in {fp32_name(run)} either.",
            evidence=[*origin_evidence(run, origin), *broken.evidence(), *twin_evidence(run, step)],
            fixes=[guard(kind, origin)],
            location=Location(
                (f"{origin.row.module or origin.row.op} ({origin.row.direction})",),
                min([step, *broken.steps[:1]]),
                max([step, *broken.steps[-1:]]),
                source=origin.source,
            ),
            grade=Grade.MEASURED,
            severity=self._severity(run),
        )

    def _from_targets(self, run: Run, step: int) -> Finding:
        broken = broken_losses(run)
        every = f", every {broken.every} steps" if broken.every else ""
        return self.finding(
            f"The loss is NaN in {fp32_name(run)} too{every}, and no operation of step {step} makes it of finite "
            "values: it comes in with the targets or the weights of the loss, or of a mean over nothing.",
            evidence=[*twin_evidence(run, step), *broken.evidence()],
            fixes=[*find_bad_samples(run, broken.every), guard(EMPTY, None)],
            location=Location((), min(step, broken.steps[0]), max(step, broken.steps[-1])),
            confidence=Confidence.MEDIUM,
            grade=Grade.MEASURED,
            severity=self._severity(run),
        )

    def _unknown(self, run: Run) -> Finding | None:
        """A run that is its own FP32: whatever made the NaN, precision did not."""
        broken = broken_losses(run)
        if not broken.steps or not without_half(run):
            return None
        first = broken.steps[0]
        before = [s.loss for s in run.steps if s.loss is not None and s.step < first]
        last = f"was {number(before[-1])} on the step before" if before else "is so from the start"
        value = before[-1] if before else str(run.steps[0].loss)
        return self.finding(
            f"The loss becomes NaN or infinite on step {first}, in a run that is FP32 throughout: its data, its "
            "loss or its learning rate is at fault.",
            evidence=[
                Evidence("loss_before", value, f"The loss {last} ({first})."),
                *broken.evidence(),
            ],
            fixes=[look_at_the_batch(first), lower_lr(run)],
            location=Location((), first, broken.steps[-1]),
            confidence=Confidence.MEDIUM,
            severity=self._severity(run),
        )  # fmt: skip

    def _made_by_loss(self, run: Run) -> Finding | None:
        """What the graph of the loss shows, where no operation was looked at."""
        found, broken = undefined_loss(run), broken_losses(run)
        if found is None or found.first.step not in broken.steps:
            return None
        every = f", every {broken.every} steps" if broken.every else ""
        where = f" that `backward` is called on at {found.source}" if found.source else ""
        return self.finding(
            f"NaN out of {found.kind.what}{every}: it is made by the loss itself{where}, of finite values and in any "
            "format.",
            evidence=[*found.evidence(), *broken.evidence()],
            fixes=[guard(found.kind, None), look_at_the_batch(found.first.step)],
            location=Location((), broken.steps[0], broken.steps[-1], source=found.source),
            severity=self._severity(run),
        )
