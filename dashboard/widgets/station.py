"""What a station of the pipeline shows, and what the stations have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ampdoctor.finding import Grade
from ampdoctor.formats import title_of_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor_dashboard.data.pipeline import StepFacts, Values
    from ampdoctor_dashboard.words import Words

BAD, WARN, GOOD, UNUSED, UNKNOWN = "bad", "warn", "good", "unused", "unknown"
"""How a station is; classes of assets/page-pipeline.css."""


@dataclass(frozen=True)
class Fact:
    """One number of a station.

    Attributes:
        name: what it is, in the reader's language.
        value: the number with its unit.
        grade: how it was obtained.
    """

    name: str
    value: str
    grade: Grade = Grade.OBSERVED


@dataclass
class Shown:
    """A station as it is shown.

    Attributes:
        health: good, bad, ...
        says: why it is so, in one line.
        dtypes: torch dtypes to name.
        values: the tensors whose ranges are drawn.
        facts: its numbers; the first stands on the station itself.
    """

    health: str = GOOD
    says: str = ""
    dtypes: tuple[str, ...] = ()
    values: tuple[Values, ...] = ()
    facts: list[Fact] = field(default_factory=list)


def spread(values: Sequence[Values], words: Words) -> list[Fact]:
    """Return the range of tensors, by dtype."""
    filled = (v for v in values if v.elements)
    return [Fact(words("range in {dtype}", dtype=title_of_dtype(v.dtype)), extent(v, words)) for v in filled]


def extent(values: Values, words: Words) -> str:
    """Return from where to where magnitudes go, as text."""
    if values.lowest is not None and values.highest is not None:
        return f"2^{values.lowest} … 2^{values.highest}"
    return words("all zero") if values.zeros == values.elements else words("nothing finite but zeros")


def broken(shown: Shown, facts: StepFacts, role: str, words: Words) -> Shown:
    """Light a station whose tensors are not finite."""
    count = facts.nonfinite(role)
    if facts.of(role):
        shown.facts.append(Fact(words("NaN or infinite elements"), f"{count:,}"))
    if count:
        shown.health, shown.says = BAD, words("{count} elements are NaN or infinite", count=f"{count:,}")
    return shown


def unrecorded(facts: StepFacts, words: Words) -> str:
    """Return why a step has no tensors."""
    if facts.row is not None and not facts.row.examined:
        return words("step {step} was not examined: no tensor was recorded", step=facts.step)
    return words("not recorded on this step")


def named(dtypes: Sequence[str]) -> str:
    """Return the titles of dtypes."""
    return ", ".join(title_of_dtype(dtype) for dtype in dtypes)
