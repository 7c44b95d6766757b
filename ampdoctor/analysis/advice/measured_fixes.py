"""Cures that a twin has tried come before those that are only expected to help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.choosing import Cure, recommend
from ampdoctor.analysis.calls.scaling import ScalingKind, loss_scaling
from ampdoctor.finding import Grade

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampdoctor.finding import Fix
    from ampdoctor.trace.run import Run


def with_measured(run: Run, fixes: Sequence[Fix], own: Mapping[Cure, Fix] | None = None) -> list[Fix]:
    """Return `fixes`, before them the cures that were measured, which say what they did to the gradient.

    Args:
        run: the run.
        fixes: what the rule advises by itself.
        own: the rule's own change to the code for a cure, instead of the general one; one of `fixes`.
    """
    told: list[Fix] = []
    replaced: set[str] = set()
    advised = [a for a in recommend(run).ranked if a.grade is Grade.MEASURED]
    dynamic = any(a.cure is Cure.DYNAMIC_SCALE for a in advised)
    for advice in advised:
        # The same scale held fast is no second choice, unless the user holds one fast already.
        if advice.cure is not Cure.STATIC_SCALE or not dynamic or _is_static(run):
            mine = (own or {}).get(advice.cure)
            fix = advice.fix if mine is None else replace(mine, expected=advice.expected, grade=advice.grade)
            replaced |= {fix.title, advice.title}
            told.append(fix)
    return [*told, *(f for f in fixes if f.title not in replaced)]


def _is_static(run: Run) -> bool:
    return loss_scaling(run).kind in {ScalingKind.STATIC, ScalingKind.HAND_WRITTEN}
