"""The rule ema-half-stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.storage import lost_updates as lost
from ampdoctor.analysis.storage.accumulators import accumulators, seen_text
from ampdoctor.analysis.wording import number, percent
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.analysis.storage.accumulators import Accumulator
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import AccumulatorRow

AVERAGING = {"file": "train.py", "line": 35, "function": "train", "op": "lerp", "added": "weight"}


def _run(energy: float, *, rate: float | None = 0.001, kind: str = "average", compensated: bool = False) -> RunBuilder:
    """Seven steps, on four of which an average of 100 weights is looked at."""
    run = RunBuilder()
    for step in range(7):
        run.step(loss=0.3, totals_watched=True)
        if step in (1, 3, 5, 6):
            absorbed = round(100 * energy)
            run.accumulator(
                kind, absorbed=absorbed, energy_absorbed=energy, increment=1e-5, rate=rate, compensated=compensated,
                **AVERAGING,
            )  # fmt: skip
    return run


class EmaHalfStuck(Rule):
    """A running average of the weights is kept in half precision and hardly moves.

    What it means
        Each update takes the average a small share of the way to the weights: a thousandth at a decay of 0.999. BF16
        takes no change below a 512th to a 256th of a value, FP16 none below a 4096th. What is added rounds away.

    Why it matters
        The training itself is fine, but the averaged model stays near where it began. Evaluated or saved, it shows no
        learning, and nothing ever says so.

    How to fix
        Keep the average in FP32 (it need not be on the GPU), and cast it where it is used.

    Not to be mistaken for
        An average in FP32 of half weights. A decay small enough for the format (0.9). Kahan summation or stochastic
        rounding, which keep what rounding takes. Weights that stand still themselves.
    """

    code = "AMP305"
    name = "ema-half-stuck"
    severity = Severity.ERROR
    needs = ("steps", "steps.totals_watched")
    thresholds = {
        "energy_warning": Threshold(lost.ENERGY_WARNING, lost.ENERGY_WARNING_SOURCE),
        "energy_error": Threshold(lost.ENERGY_ERROR, lost.ENERGY_ERROR_SOURCE),
        "steps_share": Threshold(lost.STEPS_SHARE, lost.STEPS_SHARE_SOURCE),
        "lag": Threshold(
            0.1, "a weight may move by so much of itself before its average does: training moves few weights further"
        ),
    }
    HEALTHY = (
        Example("the average moves", lambda: _run(0.02)),
        Example("a decay of 0.9 lags by 2 % at most", lambda: _run(0.9, rate=0.1)),
        Example("a Kahan sum", lambda: _run(0.95, compensated=True)),
    )
    SICK = (
        Example("a decay of 0.999 in BF16", lambda: _run(0.97)),
        Example("an average that is written out", lambda: _run(0.6, rate=None)),
        Example("a sum of checkpoints", lambda: _run(0.4, rate=None, kind="sum")),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        found = [(a, hurt) for a in accumulators(run) if _averages_weights(a) and (hurt := self._hurt(a))]
        if found:
            yield self._finding(*max(found, key=lambda pair: pair[0].last.numel))

    def _hurt(self, average: Accumulator) -> Sequence[AccumulatorRow]:
        rate = average.last.rate
        if rate is not None and average.half_place / max(rate, 1e-12) < self.threshold("lag"):
            return ()
        hurt = average.hurt(self.threshold("energy_warning"))
        return hurt if len(hurt) >= self.threshold("steps_share") * len(average.rows) else ()

    def _finding(self, average: Accumulator, hurt: Sequence[AccumulatorRow]) -> Finding:
        last, title = hurt[-1], average.title
        share = last.absorbed / max(last.nonzero, 1)
        energy = last.energy_absorbed or 0.0
        return self.finding(
            f"The average of the weights is kept in {title} and hardly moves: {percent(share)} of its elements do not "
            "take what is added.",
            evidence=[
                Evidence("unchanged_share", share, f"On step {last.step}, {percent(share)} of the {last.nonzero} "
                         f"elements that {average.place} means to change kept their value."),
                Evidence("energy_absorbed", energy, f"They held {percent(energy)} of what was to be added (sum of "
                         "squares)."),
                Evidence("steps_affected", len(hurt), seen_text(len(hurt), len(average.rows))),
                *_rate(average),
            ],
            fixes=_fixes(average),
            location=Location((), hurt[0].step, last.step, source=average.source),
            confidence=Confidence.HIGH if last.added == "weight" else Confidence.MEDIUM,
            severity=Severity.ERROR if energy >= self.threshold("energy_error") else Severity.WARNING,
        )  # fmt: skip


def _averages_weights(one: Accumulator) -> bool:
    """Whether it averages weights, or else something of many elements that is no gradient (a codebook)."""
    if one.last.added == "weight":
        return True
    return one.last.kind == "average" and one.last.added is None and not one.scalar


def _rate(average: Accumulator) -> list[Evidence]:
    rate = average.last.rate
    if rate is None:
        return []
    text = (
        f"An update goes {number(rate)} of the way (a decay of {1.0 - rate:g}); {average.title} takes no change below "
        f"{number(average.half_place)} to {number(2.0 * average.half_place)} of a value."
    )
    return [Evidence("rate", rate, text)]


def _fixes(average: Accumulator) -> list[Fix]:
    rate = average.last.rate
    weight = f"{rate:g}" if rate is not None else "1 - decay"
    where = f"  # {average.source}" if average.source else ""
    code = f"""\
ema = [p.detach().float().clone() for p in model.parameters()]  # once: FP32, whatever the model is in
with torch.no_grad():
    for e, p in zip(ema, model.parameters()):
        e.lerp_(p.float(), {weight}){where}"""
    own = "ema_model = torch.optim.swa_utils.AveragedModel(model, …).float()"
    return [
        Fix("Keep the average in FP32", code, "FP32 takes changes down to 2^-24 of a value."),
        Fix("With AveragedModel, cast the copy", own, "Its update then works on FP32 tensors."),
    ]
