"""The rule clip-before-unscale."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from ampdoctor.analysis.order import ScaledStep, scaled_steps, source_of
from ampdoctor.analysis.wording import counted, number, percent, scale_text
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


class _Clip(NamedTuple):
    step: ScaledStep
    call: CallRow

    @property
    def limit(self) -> float:
        return self.call.limit or 0.0

    @property
    def active(self) -> bool:
        """Whether it changed the gradients, as far as is known."""
        return self.call.norm is None or self.call.norm > self.limit

    @property
    def finite(self) -> bool:
        return self.call.norm is None or math.isfinite(self.call.norm)

    @property
    def shrunk(self) -> float:
        """How many times smaller the update became than the same limit on unscaled gradients would have made it."""
        return min(self.step.scale, (self.call.norm or 0.0) / self.limit) if self.limit else 1.0


def _run(
    *,
    unscale: bool,
    limit: float = 1.0,
    norms: tuple[float, ...] = (9e3, 1e4),
    follow: bool = False,
) -> RunBuilder:
    """Steps that clip to `limit` (times the scale with `follow`), with or without unscale_ before it."""
    run, scale = RunBuilder(), 16384.0
    for norm in norms:
        run.step(loss=1.4, loss_scale=scale).call("zero_grad", target="optimizer0")
        run.call("backward", scaled="all", optimizers=["optimizer0"])
        if unscale:
            run.call("unscale", target="optimizer0")
        now = limit * scale if follow else limit
        run.call("clip_norm", target="optimizer0", limit=now, norm=norm, file="train.py", line=42)
        run.call("scaler_step", target="optimizer0").scaler(
            "step", optimizer="optimizer0", scale=scale
        )
        run.call("update", target="scaler0")
        scale *= 2
    return run


class ClipBeforeUnscale(Rule):
    """Gradients are clipped while they are still multiplied by the loss scale.

    What it means
        After `scaler.scale(loss).backward()` the gradients are larger by the scale, tens of thousands of times. Clipped
        to `max_norm` in that state and divided by the scale afterwards, they end up with a norm of at most
        max_norm / scale.

    Why it matters
        Training crawls, or only "works" with limits like 1e5. Whenever the scale changes, so does the effective
        learning rate. Adam hides much of it, because it divides by the gradient's size, but clipping then does nothing
        for outliers.

    How to fix
        Call `scaler.unscale_(optimizer)` once, after the last backward and before clipping. `scaler.step` notices it
        and does not divide again.

    Not to be mistaken for
        Clipping after `unscale_`, however often it is active. A limit that the code multiplies by the scale itself. A
        huge limit that is there only to get the norm.
    """

    code = "AMP402"
    name = "clip-before-unscale"
    severity = Severity.ERROR
    needs = ("steps", "calls")
    thresholds = {
        "shrunk": Threshold(
            2.0, "updates half as large as asked for; below it the clipping is as good as right"
        ),
        "follows_scale": Threshold(
            0.01, "limit / scale steady to 1 % while the scale changes: the code multiplies them"
        ),
    }
    HEALTHY = (
        Example(
            "unscale_ first, clipping on every step", lambda: _run(unscale=True, norms=(1.5, 3.0))
        ),
        Example(
            "a limit multiplied by the scale",
            lambda: _run(unscale=False, norms=(9e3, 4e4), follow=True),
        ),
        Example("never active", lambda: _run(unscale=False, limit=1e9)),
    )
    SICK = (
        Example("max_norm=1 on scaled gradients", lambda: _run(unscale=False)),
        Example(
            "active now and then",
            lambda: _run(unscale=False, limit=5e3, norms=(1e3, 1e4, 2e3, 4e3)),
        ),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        by_line: dict[tuple[str | None, int | None], list[_Clip]] = {}
        for step in scaled_steps(run):
            for call in step.clips:
                clip = _Clip(step, call)
                if step.scale != 1.0 and clip.limit and clip.finite:
                    by_line.setdefault((call.file, call.line), []).append(clip)
        for clips in by_line.values():
            if not self._follows_scale(clips):
                yield self._finding(clips)

    def _follows_scale(self, clips: list[_Clip]) -> bool:
        """Whether the limit goes up and down with the scale."""
        scales = {c.step.scale for c in clips}
        ratios = [c.limit / c.step.scale for c in clips]
        return len(scales) > 1 and max(ratios) <= min(ratios) * (
            1.0 + self.threshold("follows_scale")
        )

    def _finding(self, clips: list[_Clip]) -> Finding:
        last = clips[-1]
        active = [c for c in clips if c.active]
        shrunk = (
            median(c.shrunk for c in active if c.call.norm is not None)
            if _norms_known(active)
            else None
        )
        share = len(active) / len(clips)
        effective = last.limit / last.step.scale
        evidence = [
            Evidence(
                "effective_limit", effective,
                f"A limit of {number(last.limit)} is applied to gradients multiplied by "
                f"{scale_text(last.step.scale)}: in truth it is {number(effective)}.",
            ),
            Evidence("active_share", share, f"It is exceeded on {percent(share)} of {counted(len(clips), 'step')}."),
        ]  # fmt: skip
        if shrunk is not None:
            text = (
                f"There it makes the gradients {number(shrunk)} times smaller than after unscale_."
            )
            evidence.append(Evidence("shrunk_times", shrunk, text))
        source = source_of(last.call)
        return self.finding(
            f"Gradients are clipped while still multiplied by the loss scale: a limit of {number(last.limit)} works as "
            f"{number(effective)}.",
            evidence=evidence,
            fixes=[_fix(last.call, source)],
            location=Location((), clips[0].step.step, last.step.step, source=source),
            confidence=Confidence.HIGH if shrunk is not None or not active else Confidence.MEDIUM,
            severity=self._severity(active, shrunk),
        )

    def _severity(self, active: list[_Clip], shrunk: float | None) -> Severity:
        if not active:
            return Severity.NOTE
        return (
            Severity.ERROR
            if shrunk is not None and shrunk >= self.threshold("shrunk")
            else Severity.WARNING
        )


def _norms_known(clips: list[_Clip]) -> bool:
    return any(c.call.norm is not None for c in clips)


def _fix(call: CallRow, source: str | None) -> Fix:
    function = "clip_grad_value_" if call.call == "clip_value" else "clip_grad_norm_"
    line = f"  # {source}" if source else ""
    code = f"""\
scaler.unscale_(optimizer)  # add this line
torch.nn.utils.{function}(model.parameters(), {call.limit:g}){line}
scaler.step(optimizer)
scaler.update()"""
    expected = (
        f"The limit of {call.limit:g} then means the gradients themselves, whatever the scale."
    )
    return Fix("Unscale before clipping", code, expected, Grade.OBSERVED)
