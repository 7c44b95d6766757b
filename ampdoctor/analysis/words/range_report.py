"""The range of loss scales in words: which scale fits, or why none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import counted, number, percent, place, scale_text
from ampdoctor.finding import Evidence, Grade
from ampdoctor.formats import FP16

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.scale_range import ScaleRange


def range_evidence(scales: ScaleRange) -> list[Evidence]:
    """Return which loss scale these gradients leave room for, and what would still be lost at it."""
    evidence = []
    if scales.peak is not None:
        largest = scales.peak.largest_scale
        text = (
            f"Unscaled, the largest gradient is {number(scales.peak.value)}, in {place(scales.peak.site)}: a loss "
            f"scale of up to {scale_text(largest)} keeps {'what can be seen of ' if scales.gone else ''}the gradients "
            "a factor of two under FP16's 65504."
        )
        evidence.append(Evidence("largest_scale", largest, text, Grade.ESTIMATED))
    if scales.gone:
        text = (
            f"Of {counted(scales.gone, 'gradient')} nothing is left in FP16: how large "
            f"{'it was' if scales.gone == 1 else 'they were'}, and which loss scale would hold them, is not known."
        )
        evidence.append(Evidence("gradients_gone", scales.gone, text, Grade.ESTIMATED))
    if scales.suggested is not None and scales.lost is not None:
        rest = _at_most(scales.lost)
        text = f"At {scale_text(scales.suggested)} FP16 would flush {rest} of the energy of any of them."
        evidence.append(Evidence("lost_energy_at_suggested_scale", scales.lost, text, Grade.ESTIMATED))
    return evidence


def expected_at_suggested(scales: ScaleRange) -> str:
    """Return what the suggested scale is expected to do."""
    if scales.suggested is None or scales.lost is None:
        return "How much FP16 would still flush cannot be known from gradients that are gone"
    return (
        f"At {scale_text(scales.suggested)} FP16 would flush {_at_most(scales.lost)} of the energy of any gradient seen"
    )


def no_range_evidence(scales: ScaleRange) -> list[Evidence]:
    """Return why a larger loss scale cannot help."""
    if scales.peak is None or scales.binades is None:
        return []
    peak = scales.peak.value * scales.current
    return [
        Evidence(
            "largest_scaled_gradient",
            peak,
            f"At a scale of {scale_text(scales.current)} the largest gradient is {number(peak)}, in "
            f"{place(scales.peak.site)}: twice the scale would take it within a factor of two of FP16's 65504.",
        ),
        Evidence(
            "binades_needed",
            scales.binades,
            f"From the largest gradient of a step down to the smallest that matters, what is left spans up to "
            f"{counted(scales.binades, 'power')} of two; FP16 has {FP16.binades}.",
            Grade.ESTIMATED,
        ),
    ]


def without_room(scales: ScaleRange) -> str:
    """Return which loss scales cannot help, as a phrase."""
    if scales.binades is not None and scales.binades > FP16.binades:
        return "at every loss scale"
    held = f", which {place(scales.peak.site)} keeps from rising" if scales.peak else ""
    return f"at a loss scale of {scale_text(scales.current)}{held}"


def _at_most(share: float) -> str:
    return "nothing" if share == 0.0 else percent(share)
