"""The rule lost-updates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from math import floor, log2
from typing import TYPE_CHECKING

from ampdoctor.analysis.cures import device_type, optimizer_type
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Location, Severity
from ampdoctor.formats import HALF_DTYPES, format_of_dtype, title_of_dtype
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow


ROUND_TO_NEAREST = frozenset(
    {
        "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "RAdam",
        "RMSprop", "Rprop", "SGD",
    }
)  # fmt: skip
"""Optimizers of torch.optim: none of them rounds stochastically or keeps what rounding takes."""


@dataclass(frozen=True)
class _Step:
    """What one step meant to change in half-precision weights, and what of it was lost; `energy` is a tensor's."""

    step: int
    rows: tuple[TensorRow, ...]
    expected: int
    unchanged: int
    energy: float
    small: int
    small_moved: int


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
    after = ("master-weights-missing", "optimizer-state-half")
    thresholds = {
        "energy_warning": Threshold(
            0.2,
            "a fifth of what a typical tensor's update holds: as if on a learning rate 10 % lower",
        ),
        "energy_error": Threshold(
            0.5,
            "half of what a typical tensor's update holds (BF16 runs that plateau lose 80 to 90 %)",
        ),
        "steps_share": Threshold(0.5, "on most of the steps examined"),
        "small_moved": Threshold(
            0.001, "plain rounding moves none of them; stochastic rounding |u| / ulp, 0.1 % or more"
        ),
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
        steps = _steps(run)
        small = sum(s.small for s in steps)
        if small and sum(s.small_moved for s in steps) >= self.threshold("small_moved") * small:
            return
        # Without these counts nothing tells stochastic rounding from none, but torch's own optimizers round to nearest.
        told = small > 0 or optimizer_type(run) in ROUND_TO_NEAREST
        hurt = [s for s in steps if s.energy >= self.threshold("energy_warning")]
        if hurt and len(hurt) >= self.threshold("steps_share") * len(steps):
            finding = self._finding(run, steps, hurt)
            yield finding if told else _untold(finding, optimizer_type(run))

    def _finding(self, run: Run, steps: Sequence[_Step], hurt: Sequence[_Step]) -> Finding:
        last = hurt[-1]
        share = last.unchanged / last.expected
        dtype = last.rows[0].dtype
        title = title_of_dtype(dtype)
        worst = sorted(last.rows, key=lambda r: -(r.energy_unchanged or 0.0))
        meant = counted(last.expected, "weight")
        text = f"{percent(share)} of the {meant} that step {last.step} meant to change kept their value."
        evidence = [
            Evidence("unchanged_share", share, text),
            Evidence(
                "lost_update_energy",
                last.energy,
                _energy_text(last, worst[0]),
            ),
            Evidence(
                "steps_affected",
                len(hurt),
                f"So it is on {len(hurt)} of {counted(len(steps), 'step')} examined.",
            ),
            *_spacing(run, last, dtype),
        ]
        return self.finding(
            f"Updates are lost in {title} weights: {percent(share)} of the weights that should move stand still.",
            evidence=evidence,
            fixes=_fixes(run),
            location=Location(tuple(f"{r.site} (update)" for r in worst), hurt[0].step, last.step),
            confidence=Confidence.HIGH,
            severity=Severity.ERROR
            if last.energy >= self.threshold("energy_error")
            else Severity.WARNING,
        )


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


def _steps(run: Run) -> list[_Step]:
    applied = {s.step for s in run.steps if s.applied is not False}
    rows: dict[int, list[TensorRow]] = {}
    for r in run.tensors("update", dtypes=HALF_DTYPES):
        if r.expected_to_move and r.step in applied:
            rows.setdefault(r.step, []).append(r)
    return [_step(step, tuple(group)) for step, group in rows.items()]


def _step(step: int, rows: tuple[TensorRow, ...]) -> _Step:
    return _Step(
        step,
        rows,
        sum(r.expected_to_move or 0 for r in rows),
        sum(r.unchanged or 0 for r in rows),
        _typical_energy(rows),
        sum(r.small_updates or 0 for r in rows),
        sum(r.small_updates_moved or 0 for r in rows),
    )


def _typical_energy(rows: Sequence[TensorRow]) -> float:
    """Return the share of its update that the typical weight's tensor lost: the median, each tensor by its elements.

    A share of all updates together cannot be had from shares by tensor: with SGD one tensor may hold most of it.
    """
    ranked = sorted(rows, key=lambda r: r.energy_unchanged or 0.0)
    counts = list(accumulate(r.expected_to_move or 0 for r in ranked))
    middle = next(i for i, count in enumerate(counts) if 2 * count >= counts[-1])
    return ranked[middle].energy_unchanged or 0.0


def _energy_text(step: _Step, worst: TensorRow) -> str:
    if len(step.rows) == 1:
        return f"They held {percent(step.energy)} of the update of `{worst.site}` (sum of squares)."
    return (
        f"Half of the weights are in tensors that lost {percent(step.energy)} or more of their own update (sum of "
        f"squares); the worst of {len(step.rows)} is `{worst.site}` with {percent(worst.energy_unchanged or 0.0)}."
    )


def _spacing(run: Run, step: _Step, dtype: str) -> list[Evidence]:
    number_format = format_of_dtype(dtype)
    weights = [r for r in run.tensors("weight", dtypes=(dtype,)) if r.step == step.step and r.rms]
    if number_format is None or not weights:
        return []
    typical = max(weights, key=lambda r: r.numel).rms
    half_place = 2.0 ** floor(log2(typical)) * number_format.eps / 2.0
    lr = next((o.lr for o in run.optimizers if o.lr), None)
    rate = f", and the learning rate is {lr:g}" if lr else ""
    least = f"in {title_of_dtype(dtype)} it takes no change below {number(half_place)}"
    text = f"A typical weight is {number(typical)}: {least}{rate}."
    return [Evidence("half_last_place", half_place, text)]


def _fixes(run: Run) -> list[Fix]:
    kind = optimizer_type(run) or "AdamW"
    code = f"""\
model = model.float()                            # instead of .to(torch.bfloat16) or .half()
optimizer = torch.optim.{kind}(model.parameters(), …)
with torch.autocast("{device_type(run)}", dtype=torch.bfloat16):  # around forward and loss
    ..."""
    kahan = f"optimizer = optimi.{kind}(model.parameters(), …, kahan_sum=True)  # pip install torch-optimi"
    return [
        Fix(
            "Keep the weights in FP32, and use autocast",
            code,
            "FP32 keeps updates down to 2^-24 of the weight.",
        ),
        Fix(
            "Use an optimizer with Kahan summation",
            kahan,
            "What rounding takes is kept and added later, in half memory.",
        ),
    ]
