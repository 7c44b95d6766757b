"""The rule scale-collapse."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import bf16_autocast
from ampdoctor.analysis.calls.scale_updates import scale_updates
from ampdoctor.analysis.columns import without_fp16
from ampdoctor.analysis.forward.first_loss import first_born
from ampdoctor.analysis.loss import loss_curve
from ampdoctor.analysis.twins.fp32_finite import precision_alone
from ampdoctor.analysis.twins.fp32_reference import fp32_name
from ampdoctor.analysis.wording import counted, number, percent, scale_text
from ampdoctor.analysis.words.origin_report import origin_evidence, tried, twin_evidence
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.calls.scale_updates import ScaleUpdate
    from ampdoctor.trace.run import Run


def _run(skipped: list[bool], losses: list[float], scale: float = 65536.0, *, taken: bool = False) -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100")
    for skip, loss in zip(skipped, losses, strict=True):
        run.step(loss=loss, loss_scale=scale, found_inf=skip, applied=taken or not skip)
        after = scale / 2 if skip else scale
        if not taken:
            run.scaler("skip" if skip else "step", scale=scale, found_inf=skip)
        run.scaler("backoff" if skip else "hold", scale=scale, scale_after=after)
        scale = after
    return run


def _twinned(nonfinite_fp32: int) -> RunBuilder:
    """Every step is skipped; on the last one the gradient was computed in FP32 too."""
    run = _run([True] * 40, [math.nan] * 40).tensor("body", "weight", slot="weight", exponents={-4: 100})
    whole = {"nonfinite": 100, "nonfinite_fp32": nonfinite_fp32, "cosine": None, "norm_ratio": None}
    whole["overflowed"] = 100 - nonfinite_fp32
    return run.twin_step("fp32").twin("run", "", "gradient", **whole)


class ScaleCollapse(Rule):
    """The loss scale falls and falls: every step is skipped and the weights no longer move.

    What it means
        The scaler halves its scale whenever a gradient is infinite or NaN. It has done so on every step up to the end
        of the run, far beyond what any range problem of the gradients could ask for: the nonfinite values do not come
        from the scale, and no scale can make them go away.

    Why it matters
        "Gradient overflow, skipping step" for ever: no step is taken any more, while the run goes on and costs.

    How to fix
        Find where the first infinity or NaN comes from, and mend that: most often an activation beyond FP16's 65504 in
        the forward pass, an epsilon that FP16 makes zero, NaN in the data or weights, a learning rate that is too
        high. A lower initial scale changes nothing. If the same step is finite in BF16, the range of FP16 is at fault.
        Where a step was computed in FP32 as well and is not finite there either, precision is not the cause, and the
        finding says so.

    Not to be mistaken for
        The first backoffs from 65536, after which steps are taken. One skip per growth interval. A scale that settles
        below 1 and goes on training.
    """

    code = "AMP104"
    name = "scale-collapse"
    severity = Severity.ERROR
    needs = ("steps",)
    after = (
        "activation-overflow", "attention-overflow", "norm-overflow", "loss-overflow", "log-of-zero-underflow",
        "eps-underflow", "cancellation-half", "mask-constant-overflow", "backward-under-autocast", "stale-inf-grads",
        "nan-not-precision", "scale-below-one", "gradient-penalty-scaled", "buffer-poisoned-by-overflow",
        "adam-eps-underflow", "optimizer-stepped-twice", "scaler-bypassed",
    )  # fmt: skip
    thresholds = {
        "skips": Threshold(17, "halvings that take torch's initial 65536 below 1, where scaling has lost its meaning"),
        "skips_without_loss": Threshold(
            8, "a calibration has finite losses; half as many skips are enough without one"
        ),
        "diverged": Threshold(100, "a loss this many times its start diverges by itself"),
    }
    HEALTHY = (
        Example("six backoffs from 65536", lambda: _run([True] * 6 + [False] * 30, [2.3] * 36)),
        Example("steps that are taken all the same", lambda: _run([True] * 40, [math.nan] * 40, taken=True)),
        Example("one skip now and then", lambda: _run(([False] * 9 + [True]) * 4, [2.3] * 40)),
        Example("settled below 1, and training", lambda: _run([True] * 18 + [False] * 30, [2.3] * 48)),
    )
    SICK = (
        Example("skipped from the first step on", lambda: _run([True] * 40, [math.nan] * 40)),
        Example("after a good start", lambda: _run([False] * 30 + [True] * 20, [2.3] * 30 + [math.nan] * 20)),
        Example("with finite losses", lambda: _run([True] * 25, [2.3] * 25)),
        Example("measured: FP32 is finite", lambda: _twinned(0)),
        Example("measured: nor is FP32 finite", lambda: _twinned(100)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        for scaler, updates in scale_updates(run).items():
            taken = _taken(run, scaler)
            skips = takewhile(lambda u: u.event == "backoff" and u.step not in taken, reversed(updates))  # noqa: B023
            streak = self._without_calibration(run, list(skips)[::-1])
            if streak and self._collapsed(run, streak):
                yield self._finding(run, updates, streak)

    def _without_calibration(self, run: Run, streak: list[ScaleUpdate]) -> list[ScaleUpdate]:
        """Return the skips from the first without a finite loss on: those just before it have another cause.

        All of them where the loss never breaks, or where the scale had collapsed before it did.
        """
        broken = _nonfinite_losses(run, streak)
        first = next((n for n, u in enumerate(streak) if u.step in broken), 0)
        return streak[first:] if first < self.threshold("skips") else streak

    def _collapsed(self, run: Run, streak: list[ScaleUpdate]) -> bool:
        # One loss that is finite all the same is a batch that was spared.
        blind = len(_nonfinite_losses(run, streak)) >= len(streak) - 1
        return len(streak) >= self.threshold("skips_without_loss" if blind else "skips")

    def _finding(self, run: Run, updates: list[ScaleUpdate], streak: list[ScaleUpdate]) -> Finding:
        first, last = streak[0], streak[-1]
        growth = loss_curve(run).growth_before(first.step)
        diverged = growth >= self.threshold("diverged")
        bad = len(_nonfinite_losses(run, streak))
        share = len(streak) / len(updates)
        evidence = [
            Evidence(
                "skips_in_a_row", len(streak),
                f"The last {counted(len(streak), 'update')} of the scaler ({percent(share)} of all) followed a skip.",
            ),
            Evidence(
                "final_scale", last.after,
                f"The scale fell from {scale_text(first.before)} to {scale_text(last.after)} in them.",
            ),
            Evidence("nonfinite_losses", bad, f"On {bad} of them the loss itself is NaN or infinite."),
        ]  # fmt: skip
        if diverged:
            text = f"Before it, the loss had grown to {number(growth)} times its start: it diverged."
            evidence.append(Evidence("loss_growth", growth, text))
        judged, finite = _in_fp32(run, streak)
        if judged is not None:
            birth = first_born(run, judged)
            evidence += [*twin_evidence(run, judged), *(origin_evidence(run, birth) if birth else ())]
        cause = " after the loss had diverged" if diverged else ""
        shared = f", and step {judged} is not finite in {fp32_name(run)} either: not a matter of precision"
        return self.finding(
            f"The loss scale collapses{cause}: from step {first.step} on every step is skipped, and the scale ends at "
            f"{scale_text(last.after)}{shared if finite is False else ''}.",
            evidence=evidence,
            fixes=[_lower_lr(run)] if diverged else _fixes(run, judged, finite),
            location=Location((), first.step, last.step),
            confidence=Confidence.LOW if diverged else Confidence.HIGH,
            grade=Grade.OBSERVED if judged is None else Grade.MEASURED,
        )  # fmt: skip


def _taken(run: Run, scaler: str) -> set[int]:
    """Return the steps that were taken without the scaler being asked: what is wrong there is the order of calls."""
    asked = {row.step for row in run.scaler if row.scaler == scaler and row.event in {"skip", "step"}}
    return {s.step for s in run.steps if s.applied} - asked


def _nonfinite_losses(run: Run, streak: list[ScaleUpdate]) -> set[int]:
    """Return the skipped steps whose loss is NaN or infinite."""
    skipped = {u.step for u in streak}
    return {s.step for s in run.steps if s.step in skipped and s.loss is not None and not math.isfinite(s.loss)}


def _in_fp32(run: Run, streak: list[ScaleUpdate]) -> tuple[int | None, bool | None]:
    """Return the first skipped step that twins have judged, and whether it is finite in FP32."""
    judged = ((u.step, precision_alone(run, u.step)) for u in streak)
    return next(((step, finite) for step, finite in judged if finite is not None), (None, None))


def _fixes(run: Run, judged: int | None, finite: bool | None) -> list[Fix]:
    search = """\
with torch.autograd.detect_anomaly():  # for one step of the kind that is skipped
    loss = compute_loss(batch)         # your forward pass
    print(loss)                        # NaN here: it is the forward pass
    loss.backward()"""
    find = Fix(
        "Find where the first NaN or infinity comes from",
        search,
        "A NaN loss points to the forward pass, which no loss scale can mend.",
    )
    if without_fp16(run):
        return [find]  # range is not what is lacking
    if judged is None or finite is None:
        expected = "If these steps are finite in BF16, the range of FP16 is the cause."
        return [find, bf16_autocast(run, expected)]
    if not finite:
        return [find]  # no format helps
    bf16 = bf16_autocast(run, f"BF16 has the range of FP32, in which step {judged} is finite.")
    return [find, tried(run, judged, "bf16", bf16)]


def _lower_lr(run: Run) -> Fix:
    lr = next((s.lr for s in run.steps if s.lr), None)
    now = f"  # now {lr:g}" if lr else ""
    code = f"optimizer.param_groups[0]['lr'] = {(lr or 1e-3) / 10:g}{now}"
    return Fix("Try a tenth of the learning rate, in FP32", code, "If it still diverges, precision is not the cause.")
