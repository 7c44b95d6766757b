"""Cures that a twin has tried come before those that are only expected to help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.choosing import recommend
from ampdoctor.finding import Grade

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampdoctor.analysis.choosing import Cure
    from ampdoctor.finding import Fix
    from ampdoctor.trace.run import Run


def with_measured(
    run: Run, fixes: Sequence[Fix], own: Mapping[Cure, Fix] | None = None
) -> list[Fix]:
    """Return `fixes`, before them the cures that were measured, which say what they did to the gradient.

    Args:
        run: the run.
        fixes: what the rule advises by itself.
        own: the rule's own change to the code for a cure, instead of the general one; one of `fixes`.
    """
    told: list[Fix] = []
    replaced: set[str] = set()
    for advice in recommend(run).ranked:
        if advice.grade is Grade.MEASURED:
            mine = (own or {}).get(advice.cure)
            fix = (
                advice.fix
                if mine is None
                else replace(mine, expected=advice.expected, grade=advice.grade)
            )
            replaced |= {fix.title, advice.title}
            told.append(fix)
    return [*told, *(f for f in fixes if f.title not in replaced)]
