"""The fewest modules to run in FP32 so that few gradients are flushed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.whatif import what_if
from ampdoctor.formats import FP16

if TYPE_CHECKING:
    from ampdoctor.analysis.advice.whatif import Recorded

FEW = 0.01
"""Flushed share of the weight gradients that nobody needs to cure."""

FEWEST_MODULES = 3
"""More modules than these are no island: then BF16 is the simpler change."""


def fewest_modules(recorded: Recorded, scale: float | None) -> tuple[tuple[str, ...], float | None]:
    """Return the fewest modules to run in FP32 so that few weight gradients are flushed at `scale`, and what is then.

    Estimated: the modules whose weights lose most are left out one by one. Empty where none has to, or too many have.
    """
    answer = what_if(recorded, FP16, scale)
    total = sum(site.elements for site in answer.weights)
    lost: dict[str, float] = {}
    for site in answer.weights:
        module = site.site.rpartition(".")[0]
        lost[module] = lost.get(module, 0.0) + site.elements * (site.flushed.estimated or 0.0)
    left, chosen = sum(lost.values()), []
    for module in sorted(lost, key=lambda m: -lost[m]):
        if not total or left <= FEW * total or not module:
            break
        chosen.append(module)
        left -= lost[module]
    enough = chosen and len(chosen) <= FEWEST_MODULES and left <= FEW * total
    return (tuple(chosen), left / total) if enough else ((), None)
