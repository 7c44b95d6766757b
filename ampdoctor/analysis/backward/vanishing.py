"""Whether the gradients of a run vanish in FP16: how many modules, how much of their energy, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.gradients import gradient_steps
from ampdoctor.analysis.loss import loss_curve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.analysis.backward.gradient_sites import GradientSite
    from ampdoctor.analysis.backward.gradients import GradientStep
    from ampdoctor.analysis.backward.limits import Limits
    from ampdoctor.trace.run import Run

EARLY = 3
"""Steps to wait for while the run goes on: the first may be special (zero-initialised branches, LoRA)."""


@dataclass(frozen=True)
class Vanishing:
    """What FP16 takes of the gradients of a run.

    Attributes:
        judged: examined steps with finite gradients and a loss that still had to fall.
        hurt: those of them on which enough modules were hurt.
        lasting: they still are in the later part of the run.
        share: share of the modules that were hurt on the last of `hurt` (of `judged` where none was).
        worst: sites of that step that were hurt, the most hurt first.
        key: the one to tell of: the cast of the loss's gradient to FP16, if it is lost there, else the worst.
    """

    judged: tuple[GradientStep, ...]
    hurt: tuple[GradientStep, ...]
    lasting: bool
    share: float
    worst: tuple[GradientSite, ...]
    key: GradientSite

    @property
    def last(self) -> GradientStep:
        """The step that the numbers are of."""
        return (self.hurt or self.judged)[-1]

    @property
    def zero_weight_gradients(self) -> tuple[int, int]:
        """How many weight gradients (of matrices) are zero in every element on that step, and of how many."""
        seen = [w.histogram for w in self.last.weights]
        return sum(h.zeros == h.numel for h in seen), len(seen)


def vanishing(run: Run, limits: Limits) -> Vanishing | None:
    """Return what FP16 takes of the gradients of `run`; None where no step can be judged."""
    judged = _judged(run, limits)
    if not judged:
        return None
    hurt = tuple(step for step in judged if hurt_share(step, limits) >= limits.modules_warning)
    last = (hurt or judged)[-1]
    worst = sorted((s for s in last.all_sites if s.lost >= limits.lost_energy), key=lambda s: -s.lost)
    entry = next((s for s in last.sites if s.counted and s.lost >= limits.lost_energy), None)
    return Vanishing(
        judged,
        hurt,
        lasting=_lasting(run, judged, hurt, limits),
        share=hurt_share(last, limits),
        worst=tuple(worst),
        key=entry or max(last.all_sites, key=lambda s: s.lost),
    )


def _lasting(run: Run, judged: Sequence[GradientStep], hurt: Sequence[GradientStep], limits: Limits) -> bool:
    late, hurt_steps = judged[len(judged) // 2 :], {step.row.step for step in hurt}
    enough = len(judged) >= EARLY or run.info.status != "running"
    often = sum(step.row.step in hurt_steps for step in late) >= limits.lasting_share * len(late)
    return enough and often and len(hurt) >= min(2, len(judged))


def _judged(run: Run, limits: Limits) -> tuple[GradientStep, ...]:
    start = loss_curve(run).start
    floor = limits.converged * start if start is not None and start > 0.0 else None
    return tuple(
        step
        for step in gradient_steps(run)
        if step.finite and (floor is None or step.row.loss is None or step.row.loss >= floor)
    )


def hurt_share(step: GradientStep, limits: Limits) -> float:
    """Share of the modules with a gradient in FP16 that lose more than the limit somewhere."""
    hurt = {s.name for s in step.all_sites if s.lost >= limits.lost_energy}
    return len(hurt) / len({s.name for s in step.all_sites})


def gone_share(step: GradientStep) -> float:
    """Share of the gradients in FP16 that are zero in every element, for whatever reason."""
    sites = step.all_sites
    return sum(not s.histogram.nonzero or s.lost == 1.0 for s in sites) / len(sites)
