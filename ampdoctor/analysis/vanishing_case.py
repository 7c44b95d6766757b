"""What the rules about vanishing gradients have in common: the case, and all of a finding but its advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from ampdoctor.analysis.scale_range import scale_range
from ampdoctor.analysis.scaling import LossScaling, ScalingKind, loss_scaling
from ampdoctor.analysis.vanishing import Vanishing, vanishing
from ampdoctor.analysis.vanishing_report import (
    evidence_of,
    grade_of,
    location_of,
    severity_of,
    what_vanishes,
)
from ampdoctor.finding import Confidence, Evidence, Grade, Location, Severity

if TYPE_CHECKING:
    from ampdoctor.analysis.limits import Limits
    from ampdoctor.analysis.scale_range import ScaleRange
    from ampdoctor.trace.run import Run


class Verdict(TypedDict):
    """Arguments of a finding that are the same whichever rule it is."""

    location: Location
    confidence: Confidence
    grade: Grade
    severity: Severity


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
    """

    found: Vanishing
    scaling: LossScaling
    scales: ScaleRange
    what: str
    evidence: list[Evidence]
    verdict: Verdict


def lasting_case(run: Run, limits: Limits) -> VanishingCase | None:
    """Return the case of a run whose gradients vanish for good in FP16; None where they do not."""
    found = vanishing(run, limits)
    if found is None or not found.lasting:
        return None
    scaling = loss_scaling(run)
    by_hand = scaling.kind is ScalingKind.HAND_WRITTEN
    sure = found.key.counted or found.share >= limits.modules_error
    return VanishingCase(
        found,
        scaling,
        scale_range(found.judged, weights_scaled=not by_hand),
        what_vanishes(found),
        evidence_of(run, found, limits),
        Verdict(
            location=location_of(found),
            confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
            grade=grade_of(found.key),
            severity=severity_of(found, limits),
        ),
    )
