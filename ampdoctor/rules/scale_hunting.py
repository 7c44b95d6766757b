"""The rule scale-hunting."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import bf16_autocast, device_type
from ampdoctor.analysis.calls.scale_updates import scale_updates
from ampdoctor.analysis.calls.scaling import DEFAULT_GROWTH_INTERVAL, loss_scaling
from ampdoctor.analysis.columns import without_fp16
from ampdoctor.analysis.wording import counted, percent, scale_code, scale_text
from ampdoctor.finding import Evidence, Finding, Fix, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.analysis.calls.scale_updates import ScaleUpdate
    from ampdoctor.trace.run import Run


def _run(interval: int, steps: int, ceiling: float, *, dtype: str = "float16") -> RunBuilder:
    """A scaler that grows every `interval` steps and steps back beyond `ceiling`."""
    run, scale, since = RunBuilder(device="cuda: NVIDIA A100"), 65536.0, 0
    for step in range(steps):
        skip = scale > ceiling
        run.step(loss=1.0, loss_scale=scale, found_inf=skip, applied=not skip)
        if step == 0:
            run.scaler("seen", enabled=True, scale=scale, growth_factor=2.0, growth_interval=interval)
            run.tensor("head", "grad_output", dtype=dtype, exponents={0: 100})
        since = 0 if skip else since + 1
        grown = since == interval
        after = scale / 2 if skip else scale * 2 if grown else scale
        run.scaler("backoff" if skip else "growth" if grown else "hold", scale=scale, scale_after=after)
        scale, since = after, 0 if grown else since
    return run


class ScaleHunting(Rule):
    """The loss scale goes up and down without end, and a constant share of the steps is thrown away.

    What it means
        The scaler raises its scale soon after lowering it, and the next change is the overflow that lowers it again.
        Each such round costs a step: its gradients are computed and discarded.

    Why it matters
        The skipped share of the compute is wasted, and the steps that are skipped are those with the largest
        gradients, so the training is biased as well.

    How to fix
        Leave `growth_interval` at torch's 2000, or at least at some hundreds of steps, and `growth_factor` at 2.

    Not to be mistaken for
        One skip per growth interval of 2000 steps: that is how a dynamic scale keeps at its limit. The backoffs at the
        start. Skips by NaN in some batches, where the scale does not rise in between. BF16, where the scale rises
        without limit and no scaler is needed.
    """

    code = "AMP106"
    name = "scale-hunting"
    severity = Severity.WARNING
    needs = ("steps",)
    after = ("activation-overflow", "nan-not-precision", "scaler-unneeded", "loss-scale-too-large")
    thresholds = {
        "skipped_share": Threshold(0.03, "60 times what torch's interval of 2000 costs (0.05 %); an interval below 33"),
        "error_share": Threshold(0.2, "every fifth step is thrown away; a growth interval of 4 or less"),
        "rounds": Threshold(3, "up and down three times is a habit, not a calibration"),
    }
    HEALTHY = (
        Example("torch's interval", lambda: _run(2000, 400, 2.0**13)),
        Example("an interval of 100: one step in a hundred", lambda: _run(100, 1000, 2.0**18)),
        Example("never at the limit", lambda: _run(2, 40, math.inf)),
        Example("BF16, no range problem at all", lambda: _run(1, 200, 2.0**120, dtype="bfloat16")),
    )
    SICK = (
        Example("an interval of 2", lambda: _run(2, 120, 2.0**18)),
        Example("an interval of 20", lambda: _run(20, 400, 2.0**18)),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        if without_fp16(run):
            return
        finite = {s.step for s in run.steps if s.loss is None or math.isfinite(s.loss)}
        for updates in scale_updates(run).values():
            settled = _after_calibration(updates)
            rounds = _rounds(settled, finite)
            skips = sum(u.event == "backoff" for u in settled)
            share = skips / len(settled) if settled else 0.0
            if rounds >= self.threshold("rounds") and share >= self.threshold("skipped_share"):
                yield self._finding(run, settled, rounds, share)

    def _finding(self, run: Run, settled: list[ScaleUpdate], rounds: int, share: float) -> Finding:
        config = loss_scaling(run).config
        interval = config.growth_interval if config is not None else None
        low, high = min(u.after for u in settled), max(u.after for u in settled)
        evidence = [
            Evidence(
                "skipped_share", share,
                f"{percent(share)} of {counted(len(settled), 'update')} of the scaler follow a skip.",
            ),
            Evidence(
                "rounds", rounds,
                f"{rounds} times the next change after a rise of the scale was an overflow that took it back, with a "
                f"finite loss; it moved between {scale_text(low)} and {scale_text(high)}.",
            ),
        ]  # fmt: skip
        if interval is not None:
            text = f"growth_interval is {interval}; torch's default is {DEFAULT_GROWTH_INTERVAL}."
            evidence.append(Evidence("growth_interval", interval, text))
        code = (
            f'scaler = torch.amp.GradScaler("{device_type(run)}", init_scale={scale_code(max(low, 1.0))})'
            f"  # growth_interval: {DEFAULT_GROWTH_INTERVAL} by default"
        )
        error = share >= self.threshold("error_share")
        return self.finding(
            f"The loss scale hunts: {percent(share)} of the steps are thrown away because it rises right back into "
            "overflow.",
            evidence=evidence,
            fixes=[
                Fix(
                    f"Set growth_interval back to {DEFAULT_GROWTH_INTERVAL}", code,
                    f"At most one step in {DEFAULT_GROWTH_INTERVAL} is skipped.",
                ),
                bf16_autocast(run, "No scale, no skips."),
            ],
            location=Location((), settled[0].step, settled[-1].step),
            severity=Severity.ERROR if error else Severity.WARNING,
        )  # fmt: skip


def _after_calibration(updates: list[ScaleUpdate]) -> list[ScaleUpdate]:
    """Return the updates from the first that was no backoff on."""
    first = next((i for i, u in enumerate(updates) if u.event != "backoff"), len(updates))
    return updates[first:]


def _rounds(updates: list[ScaleUpdate], finite: set[int]) -> int:
    """Count the growths that the next change of the scale took back on a step with a finite loss."""
    changes = [u for u in updates if u.event != "hold"]
    return sum(a.event == "growth" and b.event == "backoff" and b.step in finite for a, b in pairwise(changes))
