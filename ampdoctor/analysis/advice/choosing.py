"""Which cure to choose for a run whose gradients do not fit: a loss scale, BF16, or FP32 for a few modules.

The scale is the largest power of two that keeps every gradient a binade under FP16's max; what is then still flushed is
measured where a twin tried it, else estimated. A cure that a twin tried and that did not help is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.advice.bf16_costs import bf16_costs
from ampdoctor.analysis.advice.cures import bf16_autocast, dynamic_scaler, fp32_island, static_scaler
from ampdoctor.analysis.advice.islands import FEW, fewest_modules
from ampdoctor.analysis.advice.recommendation import Cure, Effect, Recommendation, Recommendations
from ampdoctor.analysis.advice.whatif import recorded_step, what_if
from ampdoctor.analysis.backward.gradient_range import gradient_range
from ampdoctor.analysis.backward.gradients import gradient_steps
from ampdoctor.analysis.backward.scale_range import scale_range
from ampdoctor.analysis.calls.scaling import DEFAULT_GROWTH_INTERVAL
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.twins.fp32_reference import fp32_name
from ampdoctor.analysis.twins.measured import latest
from ampdoctor.analysis.wording import percent, scale_text
from ampdoctor.errors import AmpDoctorError
from ampdoctor.finding import Fix, Grade
from ampdoctor.formats import BF16, FP16

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.analysis.advice.whatif import Recorded
    from ampdoctor.analysis.twins.measured import MeasuredStep, Measurement
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TwinRow

__all__ = ["Cure", "Effect", "Recommendation", "Recommendations", "recommend"]

SOUND = 0.999
"""Cosine from which on a cure is as good as any: the gradient is turned by less than 3 degrees."""

GAIN = 0.5
"""A cure has helped where it leaves at most this share of what was wrong; less than that may be chance."""

SHORT_RUN = 10
"""A scaler that is to find its scale needs to grow about this often within a run."""

SHORTEST_INTERVAL = 50
"""At the edge each growth costs a skipped step: at most one step in 50."""


@once_per_run
def recommend(run: Run) -> Recommendations:
    """Return the cures for the gradients of `run`, best first."""
    steps, found = gradient_steps(run), gradient_range(run)
    if not steps:
        return Recommendations(())
    told = latest(run)
    try:
        recorded = recorded_step(run)
    except AmpDoctorError:  # no weight gradient was recorded
        return Recommendations((_bf16_unseen(run),), None, found.peak.largest_scale if found else None)
    measured = told.run if told is not None else None
    before = _effect(measured) if measured else Effect(what_if(recorded).total.estimated)
    largest = found.peak.largest_scale if found else None
    if _nothing_to_change(before, recorded.scale, largest):
        return Recommendations((), found.binades if found else None, largest)
    start = scale_range(steps).suggested
    start = min(start, largest) if start is not None and largest is not None else start
    choice = _Choice(run, recorded, told, before)
    cures = (choice.dynamic(largest, start), choice.static(largest), choice.bf16(), choice.islands(largest))
    ranked = [r for r in cures if r is not None]
    note = ""
    if found is not None and not found.held:
        note = f"No loss scale holds this: {found.binades} binades needed, {FP16.binades} available."
        ranked = [r for r in ranked if r.grade is Grade.MEASURED or r.scale is None]
    return Recommendations(tuple(sorted(ranked, key=_rank)), found.binades if found else None, largest, note)


def _nothing_to_change(before: Effect, scale: float, largest: float | None) -> bool:
    """Whether next to nothing is flushed and the scale leaves the gradients the room that they need."""
    sound = before.cosine is None or before.cosine >= SOUND
    few = before.flushed is not None and before.flushed <= FEW
    return few and sound and (largest is None or scale <= 2.0 * largest)


def _bf16_unseen(run: Run) -> Recommendation:
    fix = bf16_autocast(run, "Gradients keep FP32's range unscaled.")
    return _of(Cure.BF16, fix, fix.grade, (Effect(None), Effect(None)))


def _rank(advice: Recommendation) -> tuple[bool, bool, float]:
    """Order: what was measured, what leaves the gradient sound, and then as listed."""
    cosine = advice.after.cosine if advice.after else None
    unsound = cosine is not None and cosine < SOUND
    return advice.grade is not Grade.MEASURED, unsound, -(cosine or 0.0) if unsound else 0.0


def _effect(measured: Measurement) -> Effect:
    return Effect(measured.flushed, measured.gradient.cosine)


@dataclass(frozen=True)
class _Choice:
    """What the cures are judged by."""

    run: Run
    recorded: Recorded
    told: MeasuredStep | None
    before: Effect

    def tried(self, wanted: Callable[[TwinRow], bool]) -> list[Measurement]:
        """Return the measured settings of a kind that helped, the best first."""
        others = self.told.others if self.told and self.told.run else ()
        helped = [m for m in others if wanted(m.gradient) and self._helps(m)]
        return sorted(helped, key=lambda m: (m.flushed, -(m.gradient.loss_scale or 0.0)))

    def _helps(self, m: Measurement) -> bool:
        """Whether a setting makes the gradient sound, or much less wrong; where it was sound, whether less flushes."""
        old, new = self.before.cosine, m.gradient.cosine
        if old is None or new is None or min(old, new) >= SOUND:
            before = self.before.flushed or 0.0
            return m.flushed <= GAIN * before and m.flushed < before
        return new >= SOUND or 1.0 - new <= GAIN * (1.0 - old)

    def _in_vain(self, wanted: Callable[[TwinRow], bool]) -> bool:
        """Whether a setting of a kind was tried and leaves the gradient as wrong as it was."""
        others = self.told.others if self.told and self.told.run else ()
        return any(wanted(m.gradient) and not self._helps(m) and (m.gradient.cosine or 0.0) < SOUND for m in others)

    def dynamic(self, largest: float | None, start: float | None) -> Recommendation | None:
        """A dynamic scale, begun where a twin has tried it or else where the gradients seen leave room."""
        tried = self.tried(lambda r: _scaled_fp16(r) and (largest is None or (r.loss_scale or 1.0) <= largest))
        interval = growth_interval(self.run)
        scale = (tried[0].gradient.loss_scale or 1.0) if tried else start
        if scale is None or (tried and scale <= self.recorded.scale):
            return None
        if self._in_vain(lambda r: _scaled_fp16(r) and r.loss_scale == scale):
            return None
        grade, expected, after = self._outcome(tried[:1], scale)
        fix = dynamic_scaler(self.run, scale, expected, interval)
        return _of(Cure.DYNAMIC_SCALE, fix, grade, (self.before, after), scale=scale, growth_interval=interval)

    def static(self, largest: float | None) -> Recommendation | None:
        """The largest scale that fits."""
        if largest is None or largest == self.recorded.scale:
            return None
        if self._in_vain(lambda r: _scaled_fp16(r) and r.loss_scale == largest):
            return None
        tried = self.tried(lambda r: _scaled_fp16(r) and r.loss_scale == largest)
        grade, expected, after = self._outcome(tried, largest)
        fix = static_scaler(self.run, largest, expected)
        return _of(Cure.STATIC_SCALE, fix, grade, (self.before, after), scale=largest)

    def bf16(self) -> Recommendation | None:
        """BF16, with what it costs."""
        tried = self.tried(lambda r: r.number_format == BF16.name and not r.fp32_modules)
        refused = not tried and self.told is not None and BF16.name in self.told.settings
        if refused:
            return None
        grade, expected, after = self._outcome(tried, None)
        told = " ".join((expected, *bf16_costs(self.run)))
        return _of(Cure.BF16, bf16_autocast(self.run, told), grade, (self.before, after))

    def islands(self, largest: float | None) -> Recommendation | None:
        """FP32 for the fewest modules that suffice."""
        tried = self.tried(lambda r: bool(r.fp32_modules))
        enough = [m for m in tried if m.flushed <= FEW] or tried
        best = min(enough, key=lambda m: len(m.gradient.fp32_modules), default=None)
        if best is not None:
            names = tuple(best.gradient.fp32_modules)
            grade, expected, after = self._outcome([best], None)
        else:
            names, left = fewest_modules(self.recorded, largest)
            grade, after = Grade.ESTIMATED, Effect(left)
            expected = (
                f"About {percent(left or 0.0)} of the weight gradients of step {self.recorded.step} would still be "
                "flushed."
            )
        if not names or self._in_vain(lambda r: set(r.fp32_modules) == set(names)):
            return None
        fixes = [fp32_island(self.run, name, expected) for name in names]
        fix = Fix(" and ".join(f"`{n or 'the model'}`" for n in names), "\n\n".join(f.code for f in fixes), expected)
        fix = Fix(f"Run {fix.title} in FP32", fix.code, expected, grade)
        return _of(Cure.FP32_MODULES, fix, grade, (self.before, after), modules=names)

    def _outcome(self, tried: list[Measurement], scale: float | None) -> tuple[Grade, str, Effect]:
        """Return the grade, the sentence and the effect of a setting: BF16 without a `scale`."""
        if tried and self.told is not None:
            text = self.told.before_after(tried[0].name, fp32_name(self.run)) or ""
            return Grade.MEASURED, f"Tried beside step {self.told.step}: {text}.", _effect(tried[0])
        if scale is None:
            return Grade.ESTIMATED, "Gradients keep FP32's range unscaled.", Effect(0.0)
        left = what_if(self.recorded, FP16, scale).total
        if left.estimated is None or left.low is None or left.high is None:
            unknown = "How much FP16 would still flush cannot be known from gradients that are gone."
            return Grade.ESTIMATED, unknown, Effect(None)
        now = self.before.flushed
        was = f" ({percent(now)} now)" if now is not None else ""
        text = (
            f"At {scale_text(scale)} about {percent(left.estimated)} of the weight gradients of step "
            f"{self.recorded.step} is flushed{was}."
        )
        return Grade.ESTIMATED, text, Effect(left.estimated)


def _scaled_fp16(row: TwinRow) -> bool:
    return row.number_format == FP16.name and not row.fp32_modules


def growth_interval(run: Run) -> int | None:
    """Return the growth interval for a run too short for torch's 2000 steps; None where that will do."""
    if run.info.status == "running" or len(run.steps) >= SHORT_RUN * DEFAULT_GROWTH_INTERVAL:
        return None
    interval = max(SHORTEST_INTERVAL, len(run.steps) // SHORT_RUN)
    return interval if SHORTEST_INTERVAL < interval < DEFAULT_GROWTH_INTERVAL else None


def _of(cure: Cure, fix: Fix, grade: Grade, effects: tuple[Effect, Effect], **more: Any) -> Recommendation:
    return Recommendation(cure, fix.title, fix.code, fix.expected, grade, *effects, **more)
