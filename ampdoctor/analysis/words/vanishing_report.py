"""Vanishing gradients in words: the evidence that every rule about them gives, and where and when it was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import counted, percent, place
from ampdoctor.analysis.words.loss_report import loss_evidence
from ampdoctor.finding import Evidence, Grade, Location, Severity

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.gradient_sites import GradientSite
    from ampdoctor.analysis.backward.limits import Limits
    from ampdoctor.analysis.backward.vanishing import Vanishing
    from ampdoctor.trace.run import Run


def grade_of(site: GradientSite) -> Grade:
    """Return how it is known what FP16 took of `site`: compared before and after a cast, or extrapolated."""
    return Grade.MEASURED if site.counted else Grade.ESTIMATED


def severity_of(found: Vanishing, limits: Limits) -> Severity:
    """Return error where so many modules are hurt that the run as a whole is."""
    return Severity.ERROR if found.share >= limits.modules_error else Severity.WARNING


def what_vanishes(found: Vanishing) -> str:
    """Return what is lost as a clause: "99.98 % of the gradient that enters `head` is flushed to zero"."""
    key = found.key
    if key.counted:
        return f"{percent(key.flushed)} of the gradient that enters {place(key.name)} is flushed to zero"
    names = {s.name for s in found.worst}
    total = {s.name for s in found.last.all_sites}
    return (
        f"{len(names)} of {counted(len(total), 'module')} lose part of their gradient, "
        f"{place(key.name)} {percent(key.lost)} of its energy"
    )


def location_of(found: Vanishing) -> Location:
    """Return the sites hurt on the step that the numbers are of, and the first and last step of the fault."""
    sites = tuple(dict.fromkeys(f"{s.row.site} ({s.row.role})" for s in found.worst))
    return Location(sites, found.hurt[0].row.step, found.hurt[-1].row.step)


def evidence_of(run: Run, found: Vanishing, limits: Limits) -> list[Evidence]:
    """Return what was seen of the gradients and of the loss."""
    return [*_flushed(found), *_extent(found, limits), *loss_evidence(run)]


def _flushed(found: Vanishing) -> list[Evidence]:
    entry = found.key
    step, grade = found.last.row.step, grade_of(entry)
    where = f"of the gradient at {place(entry.name)}"
    how = "by the cast to FP16" if entry.counted else "by FP16"
    return [
        Evidence(
            "flushed_share",
            entry.flushed,
            f"On step {step}, {percent(entry.flushed)} of the nonzero elements {where} are made zero {how}.",
            grade,
        ),
        Evidence("lost_energy", entry.lost, f"They hold {percent(entry.lost)} of its energy (sum of squares).", grade),
    ]


def _extent(found: Vanishing, limits: Limits) -> list[Evidence]:
    zero, total = found.zero_weight_gradients
    evidence = [
        Evidence(
            "hurt_modules_share",
            found.share,
            f"{percent(found.share)} of the modules with an FP16 gradient lose more than {percent(limits.lost_energy)} "
            "of its energy somewhere.",
            Grade.ESTIMATED,
        ),
        Evidence(
            "steps_affected",
            len(found.hurt),
            f"So it is on {len(found.hurt)} of {counted(len(found.judged), 'step')} examined.",
        ),
    ]
    if zero:
        text = f"{zero} of {total} weight gradients are zero in every element on that step."
        evidence.insert(1, Evidence("zero_weight_gradients", zero, text))
    return evidence
