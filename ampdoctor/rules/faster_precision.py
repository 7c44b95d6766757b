"""The rule faster-precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import device_type
from ampdoctor.analysis.speed import SETTINGS, surely_faster, timed, times_as_fast
from ampdoctor.analysis.wording import number
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import PaceRow


def _run(own: str, spread: float = 0.02, **milliseconds: float) -> RunBuilder:
    run = RunBuilder().step(loss=2.0)
    for setting, ms in milliseconds.items():
        run.pace(
            setting, own=setting == own, wall_ms=ms, fastest_ms=ms * (1.0 - spread), slowest_ms=ms * (1.0 + spread)
        )
    return run


class FasterPrecision(Rule):
    """Another precision makes the step faster: measured on the run's own modules and data.

    What it means
        `ampdoctor run --prove` has executed the modules of one step again, forward and backward, in FP32 and under BF16
        and FP16 autocast, in turn, and one that the run is not in took less time in its slowest round than the run's
        own in its fastest.

    Why it matters
        The time is there for the taking, or mixed precision costs what it was meant to save.

    How to fix
        Train in that precision, if the gradients hold: `ampdoctor whatif` and the second opinions of the same run say
        whether they do.

    Not to be mistaken for
        Differences within noise. A step whose time goes to the data loader or the optimizer: those were not timed. A
        half run that FP32 outpaces (amp-slower).
    """

    code = "AMP607"
    name = "faster-precision"
    severity = Severity.NOTE
    needs = ("paces",)
    thresholds = {
        "times": Threshold(
            1.1, "less is not worth a change of the numbers; the rounds of one setting differ by as much"
        )
    }
    HEALTHY = (
        Example("the run's own is the fastest", lambda: _run("bf16", fp32=20.0, bf16=10.0, fp16=11.0)),
        Example("a few percent", lambda: _run("fp32", fp32=10.0, bf16=9.5)),
        Example("BF16 where FP32 is faster, which is another rule's", lambda: _run("bf16", fp32=20.0, bf16=33.0)),
        Example("rounds that overlap", lambda: _run("fp32", 0.4, fp32=12.0, bf16=9.0)),
    )
    SICK = (
        Example("FP32 where BF16 is twice as fast", lambda: _run("fp32", fp32=20.0, bf16=10.0, fp16=60.0)),
        Example("FP16 where BF16 is faster", lambda: _run("fp16", fp32=20.0, bf16=10.0, fp16=15.0)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        paces = timed(run)
        own = next((row for row in paces.values() if row.own), None)
        if own is None:
            return
        half = own.setting != "fp32"
        wanted = [row for row in paces.values() if row is own or not (half and row.setting == "fp32")]
        fastest = min(wanted, key=lambda row: row.wall_ms or 0.0)
        if surely_faster(fastest, own) and times_as_fast(fastest, own) >= self.threshold("times"):
            yield self._finding(run, fastest, own, list(paces.values()))

    def _finding(self, run: Run, fastest: PaceRow, own: PaceRow, paces: list[PaceRow]) -> Finding:
        times = times_as_fast(fastest, own)
        title, step = SETTINGS.get(fastest.setting, fastest.setting), fastest.step
        evidence = [
            Evidence(
                f"{row.setting}_ms", row.wall_ms or 0.0,
                f"{SETTINGS.get(row.setting, row.setting)}: {number(row.wall_ms or 0.0)} ms, from "
                f"{number(row.fastest_ms or 0.0)} to {number(row.slowest_ms or 0.0)} in {row.rounds} rounds"
                f"{', as the run itself' if row.own else ''}.", Grade.MEASURED,
            )
            for row in paces
        ]  # fmt: skip
        return self.finding(
            f"In {title} the forward and backward pass is {number(times)} times as fast as in the run's own precision.",
            evidence=evidence,
            fixes=[
                Fix(
                    f"Train in {title}, if the gradients hold",
                    _code(device_type(run), fastest.setting),
                    f"Forward and backward take {number(fastest.wall_ms or 0.0)} ms instead of "
                    f"{number(own.wall_ms or 0.0)}.",
                    Grade.MEASURED,
                )
            ],
            location=Location((), step, step),
            grade=Grade.MEASURED,
        )


def _code(device: str, setting: str) -> str:
    if setting == "fp32":
        return f'torch.autocast("{device}", enabled=False)'
    dtype = {"bf16": "bfloat16", "fp16": "float16"}[setting]
    scaler = f'\nscaler = torch.amp.GradScaler("{device}")' if setting == "fp16" else ""
    return f'torch.autocast("{device}", dtype=torch.{dtype}){scaler}'
