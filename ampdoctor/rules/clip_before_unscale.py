"""The rule clip-before-unscale."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from ampdoctor.analysis.calls.hand_clips import HandClips, hand_clips
from ampdoctor.analysis.calls.order import calls_named, source_of
from ampdoctor.analysis.calls.scaled_steps import ScaledStep, scaled_steps
from ampdoctor.analysis.wording import counted, number, percent, scale_text
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import CallRow


class _Clip(NamedTuple):
    """One clipping of scaled gradients; `size` is what is compared with the limit, None where it is not known."""

    step: ScaledStep
    call: CallRow
    limit: float
    size: float | None

    @property
    def active(self) -> bool:
        """Whether it changed the gradients, as far as is known."""
        return self.size is None or self.size > self.limit

    @property
    def shrunk(self) -> float | None:
        """How many times smaller the gradients became than the same limit would have made them once unscaled."""
        return None if self.size is None else min(self.step.scale, self.size / self.limit)


def _run(
    *, unscale: bool, limit: float = 1.0, norms: tuple[float, ...] = (9e3, 1e4), follow: bool = False
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
        run.call("scaler_step", target="optimizer0").scaler("step", optimizer="optimizer0", scale=scale)
        run.call("update", target="scaler0")
        scale *= 2
    return run


def _cut_by_hand(
    *norms: float, to: float = 1.0, before: str = "scaler_step", scales: tuple[float, ...] = (16384.0,)
) -> RunBuilder:
    """Steps whose gradients code cuts from these norms to `to`, before the scaler's step or its unscale_."""
    run = RunBuilder()
    for number_, norm in enumerate(norms):
        scale = scales[number_ % len(scales)]
        run.step(loss=1.4, loss_scale=scale).call("backward", scaled="all", optimizers=["optimizer0"])
        kinds = ("unscale", "scaler_step") if before == "unscale" else ("scaler_step",)
        for kind in kinds:
            sizes = {"norm": min(to, norm), "resized": min(1.0, to / norm)} if kind == before else {}
            run.call(kind, target="optimizer0", file="train.py", line=42, **sizes)
        run.scaler("step", optimizer="optimizer0", scale=scale).call("update", target="scaler0")
    return run


def _divided_by_count() -> RunBuilder:
    run = RunBuilder()
    for norm in (9e3, 2e4, 1e4):
        run.step(loss=1.4, loss_scale=16384.0).call("backward", scaled="all", optimizers=["optimizer0"])
        run.call("scaler_step", target="optimizer0", norm=norm / 8, resized=1 / 8)
        run.scaler("step", optimizer="optimizer0", scale=16384.0)
    return run


def _clip_value() -> RunBuilder:
    run = RunBuilder()
    for _ in range(3):
        run.step(loss=1.4, loss_scale=65536.0).call("backward", scaled="all", optimizers=["optimizer0"])
        run.tensor("head", "weight_grad", slot="weight", exponents={5: 90, 10: 10}, loss_scale=65536.0)
        run.call("clip_value", target="optimizer0", limit=0.5).call("scaler_step", target="optimizer0")
        run.scaler("step", optimizer="optimizer0", scale=65536.0)
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
        huge limit that is there only to get the norm. A division by the number of micro-batches, written by hand.
    """

    code = "AMP402"
    name = "clip-before-unscale"
    severity = Severity.ERROR
    needs = ("steps", "calls")
    thresholds = {
        "shrunk": Threshold(2.0, "updates half as large as asked for; below it the clipping is as good as right"),
        "follows_scale": Threshold(
            0.01, "limit / scale steady to 1 % while the scale changes: the code multiplies them"
        ),
        "plain_ratio": Threshold(
            0.01, "limit / scale at least this, in three digits: max_norm * scale hardly meets it by chance"
        ),
        "alike": Threshold(0.01, "norms that a clipping by hand leaves differ by rounding and its epsilon alone"),
        "cut_steps": Threshold(3, "steps that come out with one norm, of different ones: no chance"),
        "plain_scale": Threshold(256, "a power of two from which on a round limit is no round multiple of it"),
    }
    HEALTHY = (
        Example("unscale_ first, clipping on every step", lambda: _run(unscale=True, norms=(1.5, 3.0))),
        Example("a limit multiplied by the scale", lambda: _run(unscale=False, norms=(9e3, 4e4), follow=True)),
        Example(
            "a limit multiplied by a scale that stays",
            lambda: _run(unscale=False, limit=0.5, norms=(9e3,), follow=True),
        ),
        Example("never active", lambda: _run(unscale=False, limit=1e9)),
        Example("a division by hand by the number of micro-batches", _divided_by_count),
        Example("by hand, to a limit multiplied by the scale", lambda: _cut_by_hand(2e4, 3e4, 5e4, to=16384.0)),
        Example("by hand, never active", lambda: _cut_by_hand(2e4, 3e4, 5e4, to=1e6)),
        Example("a limit of infinity, which asks for the norm alone", lambda: _run(unscale=False, limit=math.inf)),
    )
    SICK = (
        Example("max_norm=1 on scaled gradients", lambda: _run(unscale=False)),
        Example("a limit on each element", _clip_value),
        Example("by hand", lambda: _cut_by_hand(2e4, 3e4, 5e4)),
        Example("by hand, before unscale_", lambda: _cut_by_hand(0.5, 2e4, 3e4, 5e4, before="unscale")),
        Example("active now and then", lambda: _run(unscale=False, limit=5e3, norms=(1e3, 1e4, 2e3, 4e3))),
    )

    def check(self, run: Run) -> Iterator[Finding]:
        by_line: dict[tuple[str | None, int | None], list[_Clip]] = {}
        for clip in _clips(run):
            by_line.setdefault((clip.call.file, clip.call.line), []).append(clip)
        for clips in by_line.values():
            if not self._follows_scale(clips):
                # Of clip_value only the examined steps show whether it did anything.
                known = [c for c in clips if c.size is not None] or clips
                yield self._deliberate(known) if self._multiplied(clips) else self._finding(known)

        if not by_line:
            limits = (int(self.threshold("cut_steps")), self.threshold("alike"), self.threshold("plain_ratio"))
            yield from map(self._by_hand, hand_clips(run, *limits))

    def _by_hand(self, clips: HandClips) -> Finding:
        effective, cut = clips.limit / clips.scales[-1], median(n / clips.limit for n in clips.norms)
        shrunk = min(cut, clips.scales[-1])
        scale = scale_text(clips.scales[-1])
        before = f" before {clips.source}" if clips.source else ""
        return self.finding(
            f"Code cuts the gradients to a norm of {number(clips.limit)} while they are still multiplied by the loss "
            f"scale: the limit works as {number(effective)}.",
            evidence=[
                Evidence("norm_after", clips.limit, f"On all of {len(clips.calls)} examined steps on which code makes "
                         f"the gradients smaller{before}, they come out with a norm of {number(clips.limit)}.",
                         Grade.MEASURED),
                Evidence("norm_before", median(clips.norms), "They went in with norms from "
                         f"{number(min(clips.norms))} to {number(max(clips.norms))}.", Grade.MEASURED),
                Evidence("effective_limit", effective, f"They are multiplied by {scale}: in truth the limit is "
                         f"{number(effective)}, which makes them up to {number(shrunk)} times smaller than after "
                         "unscale_."),
            ],
            fixes=[_fix(clips.calls[-1], None, clips.limit)],
            location=Location((), clips.calls[0].step, clips.calls[-1].step, source=clips.source),
            confidence=Confidence.MEDIUM,
            severity=Severity.ERROR if shrunk >= self.threshold("shrunk") else Severity.WARNING,
        )  # fmt: skip

    def _follows_scale(self, clips: list[_Clip]) -> bool:
        """Whether the limit goes up and down with the scale."""
        scales = {c.step.scale for c in clips}
        ratios = [c.limit / c.step.scale for c in clips]
        return len(scales) > 1 and max(ratios) <= min(ratios) * (1.0 + self.threshold("follows_scale"))

    def _multiplied(self, clips: list[_Clip]) -> bool:
        """Whether every limit looks like a number that a person wrote, times the scale."""
        ratios = [c.limit / c.step.scale for c in clips]
        large = all(c.step.scale >= self.threshold("plain_scale") for c in clips)
        return large and all(
            r >= self.threshold("plain_ratio") and math.isclose(r, float(f"{r:.3g}"), rel_tol=1e-6) for r in ratios
        )

    def _deliberate(self, clips: list[_Clip]) -> Finding:
        last = clips[-1]
        ratio, source = last.limit / last.step.scale, source_of(last.call)
        scale = scale_text(last.step.scale)
        text = f"The limit is {number(last.limit)}, which is {number(ratio)} times the scale of {scale}."
        return self.finding(
            "Gradients are clipped while still multiplied by the loss scale, to a limit that seems to be multiplied by "
            "it too.",
            evidence=[Evidence("effective_limit", ratio, text)],
            fixes=[_fix(last.call, source, ratio)],
            location=Location((), clips[0].step.step, last.step.step, source=source),
            confidence=Confidence.LOW,
            severity=Severity.NOTE,
        )

    def _finding(self, clips: list[_Clip]) -> Finding:
        last = clips[-1]
        active = [c for c in clips if c.active]
        shrunk = median(c.shrunk or 1.0 for c in active) if active and active[0].size is not None else None
        effective = last.limit / last.step.scale
        source = source_of(last.call)
        return self.finding(
            f"Gradients are clipped while still multiplied by the loss scale: a limit of {number(last.limit)} works as "
            f"{number(effective)}.",
            evidence=_evidence(last, len(active) / len(clips), len(clips), shrunk),
            fixes=[_fix(last.call, source, last.call.limit or 0.0)],
            location=Location((), clips[0].step.step, last.step.step, source=source),
            confidence=Confidence.HIGH if shrunk is not None or not active else Confidence.MEDIUM,
            severity=self._severity(active, shrunk),
        )

    def _severity(self, active: list[_Clip], shrunk: float | None) -> Severity:
        if not active:
            return Severity.NOTE
        harmed = shrunk is not None and shrunk >= self.threshold("shrunk")
        return Severity.ERROR if harmed else Severity.WARNING


def _clips(run: Run) -> Iterator[_Clip]:
    largest = _largest_gradients(run)
    for step in scaled_steps(run):
        for call in step.clips:
            size = call.norm if call.call == "clip_norm" else largest.get(step.step)
            finite = size is None or math.isfinite(size)
            if step.scale != 1.0 and call.limit and call.limit < math.inf and finite:
                yield _Clip(step, call, call.limit, size)


def _largest_gradients(run: Run) -> dict[int, float]:
    """Return the largest element of any weight gradient by step, where a limit on elements makes it of interest."""
    if not calls_named(run, "clip_value"):
        return {}
    largest: dict[int, float] = {}
    for r in run.tensors("weight_grad"):
        largest[r.step] = max(largest.get(r.step, 0.0), math.inf if r.nonfinite else r.absmax)
    return largest


def _evidence(last: _Clip, share: float, steps: int, shrunk: float | None) -> list[Evidence]:
    effective = last.limit / last.step.scale
    evidence = [
        Evidence(
            "effective_limit", effective,
            f"A limit of {number(last.limit)} is applied to gradients multiplied by {scale_text(last.step.scale)}: in "
            f"truth it is {number(effective)}.",
        ),
    ]  # fmt: skip
    if last.size is not None:
        text = f"It is exceeded on {percent(share)} of {counted(steps, 'step')} on which that is known."
        evidence.append(Evidence("active_share", share, text))
    if shrunk is not None:
        text = f"There it makes the gradients {number(shrunk)} times smaller than after unscale_."
        evidence.append(Evidence("shrunk_times", shrunk, text))
    return evidence


def _fix(call: CallRow, source: str | None, limit: float) -> Fix:
    function = "clip_grad_value_" if call.call == "clip_value" else "clip_grad_norm_"
    line = f"  # {source}" if source else ""
    code = f"""\
scaler.unscale_(optimizer)  # add this line
torch.nn.utils.{function}(model.parameters(), {limit:g}){line}
scaler.step(optimizer)
scaler.update()"""
    expected = f"The limit of {limit:g} then means the gradients themselves, whatever the scale."
    return Fix("Unscale before clipping", code, expected, Grade.OBSERVED)
