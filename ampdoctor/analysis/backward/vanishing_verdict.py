"""Where and when gradients vanish, how bad that is, and how surely it is known: by a twin, else by the estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ampdoctor.analysis.backward.materiality import Harm, Materiality
from ampdoctor.analysis.words.measured_report import measured_location
from ampdoctor.analysis.words.vanishing_report import grade_of, location_of, severity_of
from ampdoctor.finding import Confidence, Grade, Location, Severity

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.limits import Limits
    from ampdoctor.analysis.backward.vanishing import Vanishing


class Verdict(TypedDict):
    """Arguments of a finding that are the same whichever rule it is."""

    location: Location
    confidence: Confidence
    grade: Grade
    severity: Severity


def verdict_on(found: Vanishing, told: Materiality | None, limits: Limits) -> Verdict:
    """Return the verdict on `found`, about which a twin may have `told` something."""
    sure = found.key.counted or found.share >= limits.modules_error
    estimated = severity_of(found, limits) if found.lasting else Severity.WARNING
    verdict = Verdict(
        location=location_of(found) if found.lasting or told is None else measured_location(told),
        confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
        grade=grade_of(found.key),
        severity=estimated,
    )
    if told is None or not told.speaks:
        return verdict
    if told.harm is Harm.UNCLEAR:
        # The estimate says harm, and the whole gradient little: part of the run at most.
        return verdict | {"severity": Severity.WARNING}
    if told.harmful and told.early and not found.lasting:
        # The first steps may be special, and what came later looks well.
        return verdict | {"grade": Grade.MEASURED, "confidence": Confidence.MEDIUM}
    by_harm = {Harm.PART: Severity.WARNING, Harm.WHOLE: Severity.ERROR}
    severity = by_harm.get(told.harm, Severity.NOTE)
    if told.harmful and told.early and estimated.rank < severity.rank:
        severity = estimated  # it may have become worse since
    return verdict | {"grade": Grade.MEASURED, "confidence": told.confidence, "severity": severity}
