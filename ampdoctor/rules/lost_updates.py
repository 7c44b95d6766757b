"""The rule lost-updates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import device_type, optimizer_type
from ampdoctor.analysis.storage import lost_updates as lost
from ampdoctor.analysis.wording import counted, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import HALF_DTYPES, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.analysis.storage.lost_updates import LostStep
    from ampdoctor.trace.run import Run


def _run(unchanged: int, moved: int = 0, dtype: str = "bfloat16") -> RunBuilder:
    """Four steps of a layer of 1000 weights of which `unchanged` keep their value; `moved` of them are rounded up."""
    run = RunBuilder(device="cuda: NVIDIA A100")
    for step in range(4):
        run.step(loss=0.3)
        if step == 0:
            run.module("body", dtypes=[dtype]).optimizer("AdamW", lr=1e-4)
        run.tensor("body", "weight", slot="weight", dtype=dtype, exponents={-3: 1000})
        run.tensor(
            "body", "update", slot="weight", dtype=dtype, exponents={-13: 1000 - unchanged}, zeros=unchanged,
            expected_to_move=1000, unchanged=unchanged, energy_unchanged=unchanged / 1000,
            small_updates=unchanged, small_updates_moved=moved,
        )  # fmt: skip
    return run


class LostUpdates(Rule):
    """Weights held in half precision do not take the optimizer's updates: w + u rounds back to w.

    What it means
        BF16 keeps 8 significant bits, FP16 11. An update smaller than half a last place of the weight (for BF16, less
        than a 512th of it or so) is rounded away. At the learning rates of fine-tuning that is most of them.

    Why it matters
        Gradients are there, the optimizer works, and yet most weights stand still. The loss settles higher than with
        FP32 weights, without any error.

    How to fix
        Keep the weights in FP32 and use autocast for the speed. Where memory forbids it, use an optimizer with
        stochastic rounding or Kahan summation, which keep what rounding takes.

    Not to be mistaken for
        Stochastic rounding or a Kahan sum at work: small updates do move some weights then. A frozen half-precision
        backbone with FP32 adapters. Weights that only weight decay moves. A tiny learning rate on FP32 weights.
    """

    code = "AMP301"
    name = "lost-updates"
    severity = Severity.ERROR
    needs = ("steps", "tensors")
    after = (
        "master-weights-missing", "optimizer-state-half", "half-grad-accumulation", "unscale-fp16-gradients",
    )  # fmt: skip
    thresholds = {
        "energy_warning": Threshold(lost.ENERGY_WARNING, lost.ENERGY_WARNING_SOURCE),
        "energy_error": Threshold(lost.ENERGY_ERROR, lost.ENERGY_ERROR_SOURCE),
        "steps_share": Threshold(lost.STEPS_SHARE, lost.STEPS_SHARE_SOURCE),
        "small_moved": Threshold(lost.SMALL_MOVED, lost.SMALL_MOVED_SOURCE),
    }
    HEALTHY = (
        Example("every weight moves", lambda: _run(0)),
        Example("a few are lost", lambda: _run(50)),
        Example("stochastic rounding", lambda: _run(800, moved=100)),
    )
    SICK = (
        Example("BF16 weights at lr 1e-4", lambda: _run(870)),
        Example("FP16 weights", lambda: _run(600, dtype="float16")),
    )

    def lacks(self, run: Run) -> list[str]:
        half = any(m.trainable and HALF_DTYPES & set(m.dtypes) for m in run.modules)
        return run.missing((*self.needs, *(("tensors.expected_to_move",) if half else ())))

    def check(self, run: Run) -> Iterator[Finding]:
        steps = lost.lost_steps(run)
        if lost.keeps_what_rounding_takes(steps, self.threshold("small_moved")):
            return
        hurt = [s for s in steps if s.energy >= self.threshold("energy_warning")]
        if hurt and len(hurt) >= self.threshold("steps_share") * len(steps):
            finding = self._finding(run, steps, hurt)
            # Nothing tells stochastic rounding from none where no update was surely too small.
            yield finding if lost.told_from_keeping(run) else _untold(finding, _kind(run, hurt))

    def _finding(self, run: Run, steps: Sequence[LostStep], hurt: Sequence[LostStep]) -> Finding:
        last = hurt[-1]
        share = last.share
        dtype = last.rows[0].dtype
        title = title_of_dtype(dtype)
        worst = sorted(last.rows, key=lambda r: -(r.energy_unchanged or 0.0))
        meant = counted(last.expected, "weight")
        text = f"{percent(share)} of the {meant} that step {last.step} meant to change kept their value."
        evidence = [
            Evidence("unchanged_share", share, text),
            Evidence("lost_update_energy", last.energy, lost.energy_text(last)),
            Evidence(
                "steps_affected", len(hurt), f"So it is on {len(hurt)} of {counted(len(steps), 'step')} examined."
            ),
            *lost.spacing(run, last),
        ]
        return self.finding(
            f"Updates are lost in {title} weights: {percent(share)} of the weights that should move stand still.",
            evidence=evidence,
            fixes=_fixes(run),
            location=Location(tuple(f"{r.site} (update)" for r in worst), hurt[0].step, last.step),
            confidence=Confidence.HIGH,
            severity=Severity.ERROR if last.energy >= self.threshold("energy_error") else Severity.WARNING,
        )


def _kind(run: Run, hurt: Sequence[LostStep]) -> str | None:
    worst = max(hurt[-1].rows, key=lambda r: r.energy_unchanged or 0.0)
    return optimizer_type(run, worst.module)


def _untold(finding: Finding, kind: str | None) -> Finding:
    """Return the finding as a note: the optimizer may well keep, in its own way, what rounding takes."""
    name = kind or "the optimizer"
    text = f"Whether {name} rounds stochastically, or keeps what rounding takes, can't be told from the trace."
    return replace(
        finding,
        severity=Severity.NOTE,
        confidence=Confidence.LOW,
        evidence=(*finding.evidence, Evidence("optimizer", name, text)),
    )


def _fixes(run: Run) -> list[Fix]:
    kind = optimizer_type(run) or "AdamW"
    code = f"""\
model = model.float()                            # instead of .to(torch.bfloat16) or .half()
optimizer = torch.optim.{kind}(model.parameters(), …)
with torch.autocast("{device_type(run)}", dtype=torch.bfloat16):  # around forward and loss
    ..."""
    kahan = f"optimizer = optimi.{kind}(model.parameters(), …, kahan_sum=True)  # pip install torch-optimi"
    return [
        Fix("Keep the weights in FP32, and use autocast", code, "FP32 keeps updates down to 2^-24 of the weight."),
        Fix(
            "Use an optimizer with Kahan summation",
            kahan,
            "What rounding takes is kept and added later, in half memory.",
        ),
    ]
