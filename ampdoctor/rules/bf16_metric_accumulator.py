"""The rule bf16-metric-accumulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.storage.accumulators import accumulators, seen_text
from ampdoctor.analysis.wording import number, percent
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.storage.accumulators import Accumulator
    from ampdoctor.trace.run import Run


def _run(absorbed_from: int, *, increment: float = 1.5, total: float = 512.0, compensated: bool = False) -> RunBuilder:
    """Six hundred steps; a total of one number is looked at on every 97th and stands still from a step on."""
    run = RunBuilder()
    for step in range(600):
        run.step(loss=increment, totals_watched=True)
        if step % 97 == 0 and step:
            absorbed = int(step >= absorbed_from)
            run.accumulator(
                "sum", numel=1, nonzero=1, absorbed=absorbed, energy_absorbed=float(absorbed), increment=increment,
                absmax=total, compensated=compensated, file="train.py", line=31, function="train",
            )  # fmt: skip
    return run


class Bf16MetricAccumulator(Rule):
    """A running total (a logged loss, a metric) is summed in half precision and stops growing.

    What it means
        Once a BF16 total is 256 to 512 times what is added to it, the sum rounds back to the total (FP16: 2048 to
        4096 times). Well before that, each addition is rounded to a coarse step, up or down.

    Why it matters
        The training is fine and the number that is logged is not: the mean sinks with the length of the epoch. Runs are
        compared, stopped and reported by such numbers.

    How to fix
        Sum in FP32, or in Python floats.

    Not to be mistaken for
        A fault of the training. Totals in FP32. Totals that are cleared before they fill up. Kahan sums.
    """

    code = "AMP307"
    name = "bf16-metric-accumulator"
    severity = Severity.WARNING
    needs = ("steps", "steps.totals_watched")
    thresholds = {
        "missing": Threshold(0.05, "5 % of the total: epochs differ by less, and so people read meaning into it")
    }
    HEALTHY = (
        Example("a short sum", lambda: _run(10_000)),
        Example("a Kahan sum", lambda: _run(200, compensated=True)),
        Example("next to nothing is added any more", lambda: _run(200, increment=1e-3)),
    )
    SICK = (
        Example("a loss summed in BF16", lambda: _run(256)),
        Example("a count of hits", lambda: _run(291, increment=30.0, total=8192.0)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        end = run.steps[-1].step + 1
        missing = [(a.lost(end), a) for a in accumulators(run) if _is_metric(a)]
        share, worst = max(missing, key=lambda pair: pair[0], default=(0.0, None))
        if worst is not None and share >= self.threshold("missing"):
            yield self._finding(worst, share)

    def _finding(self, total: Accumulator, share: float) -> Finding:
        hurt = [row for row in total.rows if row.absorbed]
        last, title = hurt[-1], total.title
        largest = max(row.absmax for row in hurt)
        added = last.increment or 0.0
        return self.finding(
            f"A running total is summed in {title} and stands still at {number(largest)}: what is logged is wrong, the "
            "training is not.",
            evidence=[
                Evidence("absorbed_share", last.absorbed / last.numel, f"On step {last.step}, {total.place} added "
                         f"{number(added)} to {number(last.absmax)}, and {percent(last.absorbed / last.numel)} of the "
                         "sums came out as the total was."),
                Evidence("steps_affected", len(hurt), seen_text(len(hurt), len(total.rows))),
                Evidence("missing_share", share, "By the end, what was not added comes to about "
                         f"{number(share)} times what the total shows.", Grade.ESTIMATED),
            ],
            fixes=[_fix(total)],
            location=Location((), hurt[0].step, last.step, source=total.source),
        )  # fmt: skip


def _is_metric(one: Accumulator) -> bool:
    """Whether it is made from neither weights nor gradients, and a sum or a single number."""
    return one.last.added is None and (one.last.kind == "sum" or one.scalar)


def _fix(total: Accumulator) -> Fix:
    where = f"  # {total.source}" if total.source else ""
    code = f"""\
total = torch.zeros_like(total, dtype=torch.float32)  # where it is made; instead of {total.last.dtype}
total += value.detach().float(){where}"""
    return Fix("Sum in FP32", code, "FP32 counts ten million such additions before it stands still.")
