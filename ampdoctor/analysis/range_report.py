"""The range of loss scales in words: which scale fits, or why none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import number, percent, place, scale_text
from ampdoctor.finding import Evidence, Grade
from ampdoctor.formats import FP16

if TYPE_CHECKING:
    from ampdoctor.analysis.scale_range import ScaleRange


def range_evidence(scales: ScaleRange) -> list[Evidence]:
    """Return which loss scale these gradients leave room for, and what would still be lost at it."""
    limit = "keeps" if scales.seen_whole else "keeps what can be seen of"
    grade = Grade.ESTIMATED
    return [
        Evidence(
            "largest_scale",
            scales.largest,
            f"Unscaled, the largest gradient is {number(scales.peak)}, in {place(scales.peak_site)}: a loss scale of "
            f"up to {scale_text(scales.largest)} {limit} the gradients a factor of two under FP16's 65504.",
            Grade.ESTIMATED,
        ),
        Evidence(
            "lost_energy_at_suggested_scale",
            scales.lost,
            f"At {scale_text(scales.suggested)} FP16 would flush {percent(scales.lost)} of the energy of any of them.",
            grade,
        ),
    ]


def no_range_evidence(scales: ScaleRange) -> list[Evidence]:
    """Return why no loss scale can help."""
    return [
        Evidence(
            "binades_needed",
            scales.binades,
            f"From the largest gradient down to the smallest that matters they span at least {scales.binades} powers "
            f"of two at a scale of {scale_text(scales.current)}, with no room above: FP16 has {FP16.binades}.",
            Grade.ESTIMATED,
        )
    ]
