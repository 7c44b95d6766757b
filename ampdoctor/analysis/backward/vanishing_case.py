"""What the rules about vanishing gradients have in common: the case, and all of a finding but its advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward.gradient_range import as_twins_know
from ampdoctor.analysis.backward.materiality import Harm, Materiality, materiality
from ampdoctor.analysis.backward.scale_range import scale_range
from ampdoctor.analysis.backward.vanishing import EARLY, Vanishing, vanishing
from ampdoctor.analysis.backward.vanishing_verdict import Verdict, verdict_on
from ampdoctor.analysis.calls.scaling import LossScaling, ScalingKind, loss_scaling
from ampdoctor.analysis.words.loss_report import loss_evidence
from ampdoctor.analysis.words.measured_report import measured_evidence, what_measured
from ampdoctor.analysis.words.vanishing_report import evidence_of, what_vanishes

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.limits import Limits
    from ampdoctor.analysis.backward.scale_range import ScaleRange
    from ampdoctor.finding import Evidence
    from ampdoctor.trace.run import Run


@dataclass(frozen=True)
class VanishingCase:
    """A run whose gradients could be judged, and whose loss was scaled in some way.

    Attributes:
        found: what FP16 takes of the gradients.
        scaling: how the loss is scaled.
        scales: which loss scales there is room for.
        what: what is lost, as a clause.
        evidence: what was seen of the gradients and of the loss.
        verdict: where, when, how sure and how bad.
        harmless: what is flushed does not matter, as a twin measured.
    """

    found: Vanishing
    scaling: LossScaling
    scales: ScaleRange
    what: str
    evidence: list[Evidence]
    verdict: Verdict
    harmless: bool = False

    def summary(self, how: str) -> str:
        """Return the case in one sentence, given how the loss is scaled."""
        begin = "Harmless underflow" if self.harmless else "FP16 gradients vanish"
        return f"{begin} {how}: {self.what}."


def lasting_case(run: Run, limits: Limits) -> VanishingCase | None:
    """Return the case of a run whose gradients vanish for good in FP16; None where they do not.

    Where a twin step speaks for the run, it decides whether they do and how bad that is; elsewhere the estimate does.
    """
    found = vanishing(run, limits)
    if found is None:
        return None
    told = materiality(run, found, limits)
    if told is not None and told.speaks and told.harm is Harm.NOTHING_FLUSHED:
        return None
    waiting = run.info.status == "running" and len(found.judged) < EARLY
    if not found.lasting and (told is None or not told.harmful or waiting):
        return None
    scaling = loss_scaling(run)
    by_hand = scaling.kind is ScalingKind.HAND_WRITTEN
    # Without a twin that decides, a value counted at a cast is told first: it is as good as measured.
    by_twin = told is not None and (told.harmless or (told.harmful and not _at_cast(found)))
    return VanishingCase(
        found,
        scaling,
        as_twins_know(run, scale_range(found.judged, weights_scaled=not by_hand)),
        what_measured(told) if told is not None and by_twin else what_vanishes(found),
        _evidence(run, found, told, limits),
        verdict_on(found, told, limits),
        harmless=told is not None and told.harmless,
    )


def _at_cast(found: Vanishing) -> bool:
    return found.lasting and found.key.counted


def _evidence(run: Run, found: Vanishing, told: Materiality | None, limits: Limits) -> list[Evidence]:
    measured = measured_evidence(run, told) if told is not None else []
    estimated = evidence_of(run, found, limits) if found.lasting else loss_evidence(run)
    return [*measured, *estimated]
