"""A cure that is recommended, with what is known of it: how it came about is told in `choosing`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ampdoctor.finding import Fix

if TYPE_CHECKING:
    from ampdoctor.finding import Grade


class Cure(str, Enum):
    """What is changed."""

    DYNAMIC_SCALE = "dynamic-scale"
    STATIC_SCALE = "static-scale"
    BF16 = "bf16"
    FP32_MODULES = "fp32-modules"


@dataclass(frozen=True)
class Effect:
    """What a setting does to the gradient as a whole.

    Attributes:
        flushed: flushed share of the weight-gradient elements that are nonzero in FP32; None where not known.
        cosine: of the whole gradient to that in FP32; None unless a twin measured it.
    """

    flushed: float | None
    cosine: float | None = None


@dataclass(frozen=True)
class Recommendation:
    """One cure, with what is known of it.

    Attributes:
        cure: what is changed.
        title: what to do, imperative.
        code: the change for the user's stack.
        expected: what it does and what it costs, in a few sentences.
        grade: measured where a twin tried it, else estimated.
        before: the run as it is; None where nothing is known.
        after: with the cure.
        scale: loss scale, initial for a dynamic one; None without.
        growth_interval: for a dynamic one; None for "leave the default" and without.
        modules: modules to run in FP32.
    """

    cure: Cure
    title: str
    code: str
    expected: str
    grade: Grade
    before: Effect | None = None
    after: Effect | None = None
    scale: float | None = None
    growth_interval: int | None = None
    modules: tuple[str, ...] = ()

    @property
    def fix(self) -> Fix:
        """The recommendation as a finding has it."""
        return Fix(self.title, self.code, self.expected, self.grade)


@dataclass(frozen=True)
class Recommendations:
    """The cures for a run, best first.

    Attributes:
        ranked: best first; empty where nothing has to change or nothing is known.
        binades_needed: powers of two that the gradients that matter span; None where not known.
        largest_scale: largest 2^k that keeps every gradient one binade or more below FP16's max; None where not known.
        note: why no loss scale will do ("no loss scale holds this: 52 binades needed, 40 available"), else empty.
    """

    ranked: tuple[Recommendation, ...]
    binades_needed: int | None = None
    largest_scale: float | None = None
    note: str = ""

    @property
    def best(self) -> Recommendation | None:
        """The first of them."""
        return self.ranked[0] if self.ranked else None

    @property
    def fixes(self) -> list[Fix]:
        """All of them as a finding has them."""
        return [r.fix for r in self.ranked]
