"""Whether what FP16 flushes matters, as a twin step measured it: the gradient beside FP32's, not a count of zeros.

Where a twin spoke, it overrules the estimate, within limits:

- The latest twin step speaks, and for the run only where the run is still as it was then. A harmless one is no word on
  later steps that look worse than it did, or on which more has become zero; a harmful one is none once the loss scale
  has moved up. One early step is less sure than two, or than one that the estimate of later steps agrees with.
- A gradient that is turned is not yet one that was flushed: rounding turns it too. A setting with more range that turns
  it less (FP16 at a larger scale, BF16 although it rounds more coarsely, FP32 in some modules) tells the two apart;
  where none was tried, what was flushed must be enough to explain it.
- Optimizers that scale each parameter by itself (Adam) move a weight whose gradient is a millionth of the largest as
  far as any other. For them the weight gradients count by themselves too; for SGD the whole gradient is the update.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import optimizer_type
from ampdoctor.analysis.backward.range_or_rounding import by_flushing
from ampdoctor.analysis.backward.vanishing import gone_share, hurt_share
from ampdoctor.analysis.twins.fp32_reference import fp32_name
from ampdoctor.analysis.twins.measured import latest, measured_steps, wrong_share
from ampdoctor.finding import Confidence

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.limits import Limits
    from ampdoctor.analysis.backward.vanishing import Vanishing
    from ampdoctor.analysis.twins.measured import MeasuredStep, Measurement
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TwinRow

MOST_BY_ROUNDING = 2.0
"""What is above half the smallest subnormal is rounded up to all of it: no norm more than doubles. One that does was
compared at the wrong loss scale."""

FIRST_STEPS = 2
"""On the first step what is zero-initialised (LoRA's B, residual branches) lets no gradient through, and on the second
little: what is measured on them may be of these steps alone."""

LAST_EARLY_STEP = 2
"""The step of the first second opinion, where nobody asks for others: on it the run has hardly begun to train."""

WORSE = 0.1
"""Difference of two shares from which on one step is worse than another."""

PLAIN_SGD = frozenset({"SGD", "ASGD"})
"""Optimizers whose update is proportional to the gradient."""


class Harm(IntEnum):
    """What flushing does to the gradient, in order."""

    NOTHING_FLUSHED = 0
    HARMLESS = 1
    UNCLEAR = 2
    PART = 3
    WHOLE = 4


@dataclass(frozen=True)
class Materiality:
    """What a twin step says about the gradients of a run.

    Attributes:
        step: the twin step.
        own: what the run itself computed on it.
        harm: what flushing does to that.
        hurt: weight gradients that are hurt by themselves, the most hurt first.
        tensors: weight gradients (of matrices) that were compared.
        speaks: the step is like the run as a whole, so that it decides.
        early: it is one of the first steps, and the run went on.
        alone: the run has hardly begun on it, and neither another twin step nor the estimate of later ones agrees.
        rounded: flushing does not explain how far the whole gradient is turned.
        fp32: what to call that which it was compared with.
    """

    step: MeasuredStep
    own: Measurement
    harm: Harm
    hurt: tuple[TwinRow, ...]
    tensors: int
    speaks: bool
    early: bool
    alone: bool
    rounded: bool
    fp32: str

    @property
    def confidence(self) -> Confidence:
        """How sure it is that the run is as this step."""
        return Confidence.MEDIUM if self.alone else Confidence.HIGH

    @property
    def harmful(self) -> bool:
        """It decides, and for harm."""
        return self.speaks and self.harm >= Harm.PART

    @property
    def harmless(self) -> bool:
        """It decides, and for no harm."""
        return self.speaks and self.harm <= Harm.HARMLESS


def materiality(run: Run, found: Vanishing, limits: Limits) -> Materiality | None:
    """Return what the latest twin step says about the gradients that `found` is about; None without one."""
    step = latest(run)
    if step is None or step.run is None or not _comparable(run, found, step):
        return None
    harm, hurt, tensors = _judged(run, step, step.run, limits)
    stale = _outgrown(found, step) if harm >= Harm.PART else _worse_later(found, step, limits)
    agreed = _later_agree(found, step, harm, limits) or _another_agrees(run, step, harm, limits)
    return Materiality(
        step,
        step.run,
        harm,
        hurt,
        tensors,
        speaks=not stale,
        early=step.step < FIRST_STEPS and found.judged[-1].row.step > step.step,
        alone=step.step <= LAST_EARLY_STEP and not agreed,
        rounded=not by_flushing(step, step.run, step.run.gradient),
        fp32=fp32_name(run),
    )


def _judged(run: Run, step: MeasuredStep, own: Measurement, limits: Limits) -> tuple[Harm, tuple[TwinRow, ...], int]:
    """Return the harm, the weight gradients that are hurt by themselves, and how many were compared."""
    by_itself = optimizer_type(run) not in PLAIN_SGD
    matrices = [r for r in own.weights if len(r.shape) > 1 and by_itself]
    hurt = [r for r in matrices if _hurt(step, own, r, limits)]
    harm = _harm(step, own, len(hurt) / len(matrices) if matrices else 0.0, limits)
    return harm, tuple(sorted(hurt, key=lambda r: -(wrong_share(r) or 0.0))), len(matrices)


def _comparable(run: Run, found: Vanishing, step: MeasuredStep) -> bool:
    """Whether the twin step is one that can be judged: not converged, not skipped, or not examined at all."""
    judged = {s.row.step for s in found.judged}
    examined = {s.step for s in run.steps if s.examined}
    return step.step in judged or step.step not in examined


def _harm(step: MeasuredStep, own: Measurement, hurt: float, limits: Limits) -> Harm:
    whole, wrong = own.gradient, own.wrong
    if not any(r.underflowed for r in (whole, *own.weights, *own.outputs)):
        return Harm.NOTHING_FLUSHED
    if wrong is None or whole.norm_ratio is None:
        return Harm.HARMLESS if not whole.nonzero else Harm.UNCLEAR
    if whole.norm_ratio > MOST_BY_ROUNDING:
        return Harm.UNCLEAR
    flushing = by_flushing(step, own, whole)
    if (wrong >= limits.wrong_error and flushing) or hurt >= limits.modules_error:
        return Harm.WHOLE
    if (wrong >= limits.wrong_warning and flushing) or hurt >= limits.modules_warning:
        return Harm.PART
    straight = whole.cosine is not None and whole.cosine >= limits.cosine_harmless
    as_long = abs(whole.norm_ratio - 1.0) <= limits.norm_harmless
    return Harm.HARMLESS if straight and as_long else Harm.UNCLEAR


def _hurt(step: MeasuredStep, own: Measurement, row: TwinRow, limits: Limits) -> bool:
    wrong = wrong_share(row)
    if wrong is None or not row.underflowed:
        return False
    return wrong >= limits.lost_energy and by_flushing(step, own, row)


def _worse_later(found: Vanishing, step: MeasuredStep, limits: Limits) -> bool:
    """Whether the estimate finds later steps worse than the twin step, which then does not speak for them."""
    own = min(found.judged, key=lambda s: abs(s.row.step - step.step))
    # What has become zero altogether tells nothing of how large it was, and was something when it was measured.
    if gone_share(found.judged[-1]) > gone_share(own) + WORSE:
        return True
    last = found.last
    if last.row.step <= step.step:
        return False
    lost, lost_later = (max(s.lost for s in g.all_sites) for g in (own, last))
    more = hurt_share(last, limits) - hurt_share(own, limits)
    return more > WORSE or lost_later > lost + WORSE


def _later_agree(found: Vanishing, step: MeasuredStep, harm: Harm, limits: Limits) -> bool:
    """Whether there are later steps, and the estimate says of them what was measured on `step`: harm, or none."""
    later = [s for s in found.judged if s.row.step > step.step]
    hurt = sum(hurt_share(s, limits) >= limits.modules_warning for s in later)
    often = hurt >= limits.lasting_share * len(later)
    return bool(later) and harm is not Harm.UNCLEAR and often == (harm >= Harm.PART)


def _another_agrees(run: Run, step: MeasuredStep, harm: Harm, limits: Limits) -> bool:
    """Whether another twin step says the same as `step`."""
    theirs = [
        _judged(run, other, other.run, limits)[0]
        for other in measured_steps(run)
        if other.run is not None and other.step != step.step
    ]
    clear = [h for h in theirs if h is not Harm.UNCLEAR and harm is not Harm.UNCLEAR]
    return any((h >= Harm.PART) == (harm >= Harm.PART) for h in clear)


def _outgrown(found: Vanishing, step: MeasuredStep) -> bool:
    """Whether the loss scale has grown since the twin step, and the estimate sees nothing lost any more."""
    own = min(found.judged, key=lambda s: abs(s.row.step - step.step))
    return not found.lasting and found.judged[-1].scale >= 2.0 * own.scale
