"""What the page What-if shows of a run: one step in another number format, at every loss scale."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.analysis.advice.bf16_costs import bf16_costs
from ampdoctor.analysis.advice.choosing import recommend
from ampdoctor.analysis.advice.whatif import CURVE, WhatIf, measured_points, recorded_step, what_if
from ampdoctor.analysis.twins.opinions import twin_rows
from ampdoctor.errors import AmpDoctorError
from ampdoctor.formats import FORMATS, FP32, NumberFormat
from ampdoctor_dashboard.data.step_run import run_of_step, steps_with

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ampdoctor.analysis.advice.recommendation import Recommendations
    from ampdoctor_dashboard.data.kept import Kept
    from ampdoctor_dashboard.data.opened import OpenedRun

LOWEST, HIGHEST = CURVE[0], CURVE[-1]
"""log2 of the smallest and the largest loss scale that can be asked about."""

OFFERED = tuple(f for f in FORMATS.values() if f.bytes is not None and f.name != "fp64")
"""Formats that can be asked about: those that a gradient can be stored in, FP64 left out, which nobody trains in."""

MOST_SITES = 20_000
"""Sites of weight gradients up to which a step is worked out; 100,000 were more than a page can wait for."""

MOST_DIGITS = 4
"""Exponents of this many digits are none."""

KEPT = 8
"""Curves of a run that are kept."""


@dataclass(frozen=True)
class Asked:
    """What is asked: which step in which format, and of which sites.

    Attributes:
        step: an examined step; None for the last, if possible one with a twin.
        format: name of a number format; empty for the run's own.
        sites: glob of the sites.
    """

    step: int | None = None
    format: str = ""
    sites: str = "*"


@dataclass(frozen=True)
class Answers:
    """One step in one format at every loss scale.

    Attributes:
        own: at the run's own scale.
        by_scale: by log2 of the scale.
        measured: what twins measured: flushed share by log2 of the scale.
        proven: a twin has looked at this step.
    """

    own: WhatIf
    by_scale: dict[int, WhatIf]
    measured: dict[float, float]
    proven: bool

    def at(self, exponent: int | None) -> WhatIf:
        """Return the answer at 2**`exponent`, or at the run's own scale."""
        return self.own if exponent is None else self.by_scale[within(exponent)]

    def shares(self, part: str) -> NDArray[np.float64]:
        """Return the flushed share (`estimated`, `low` or `high`) by scale; NaN where it is not known."""
        return _floats(getattr(answer.total, part) for _, answer in sorted(self.by_scale.items()))

    @property
    def subnormal(self) -> NDArray[np.float64]:
        """The share that stays nonzero and loses bits, by scale; NaN where it is not known."""
        return _floats(subnormal_share(answer) for _, answer in sorted(self.by_scale.items()))

    @property
    def overflows_from(self) -> int | None:
        """log2 of the smallest scale at which the largest gradient does not fit; None where it always does."""
        return next((e for e, answer in sorted(self.by_scale.items()) if answer.overflows), None)

    @property
    def own_exponent(self) -> float:
        """log2 of the run's own scale."""
        return log2(self.own.own_scale)


def _floats(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array([float("nan") if value is None else value for value in values], float)


def answers(opened: OpenedRun, asked: Asked) -> Answers:
    """Return what becomes of the gradients, at every loss scale; worked out once.

    Raises:
        AmpDoctorError: the step has no recorded gradients, or no site is called like that.
    """
    curves: Kept[Answers] = opened.kept("what-if", KEPT)
    return curves.get(asked, lambda: _worked_out(opened, asked))


def _worked_out(opened: OpenedRun, asked: Asked) -> Answers:
    step = asked.step if asked.step is not None else default_step(opened)
    examined = steps_with(opened, "weight_grad")
    if step not in examined:
        shown = ", ".join(map(str, examined[-20:]))
        hint = f"examined steps: {shown}" if shown else "record a few steps of its training"
        raise AmpDoctorError("no gradients were recorded of this step", hint=hint)
    recorded = recorded_step(run_of_step(opened, step), step)
    fmt = chosen_format(asked.format, recorded.backward.half or FP32)
    by_scale = {e: what_if(recorded, fmt, 2.0**e, asked.sites) for e in CURVE}
    own = what_if(recorded, fmt, None, asked.sites)
    points = measured_points(recorded, fmt, asked.sites)
    return Answers(own, by_scale, points, bool(recorded.twins))


def chosen_format(name: str, own: NumberFormat) -> NumberFormat:
    """Return the format of that name; `own` where there is none."""
    return FORMATS.get(name, own)


def exponent_of(text: str) -> int | None:
    """Return the power of two that an address asks about; None for the run's own scale."""
    digits = text.strip().removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < MOST_DIGITS else None


def within(exponent: float) -> int:
    """Return the power of two that can be asked about and is nearest to `exponent`."""
    return round(min(max(exponent, LOWEST), HIGHEST))


def too_large(opened: OpenedRun) -> bool:
    """Whether the gradients of a step are too many to be worked out while somebody waits."""
    return sum(site.role == "weight_grad" for site in opened.tensors.sites) > MOST_SITES


def default_step(opened: OpenedRun) -> int | None:
    """Return the last step with weight gradients, if possible one with a twin; None without any."""
    examined = steps_with(opened, "weight_grad")
    proven = {row.step for row in twin_rows(run_of_step(opened, None)) if row.role == "weight_grad"}
    return max((step for step in examined if step in proven), default=examined[-1] if examined else None)


def advice(opened: OpenedRun) -> Recommendations:
    """Return the cures for the run as a whole, best first; of a long run this takes a while, the first time."""
    cures: Kept[Recommendations] = opened.kept("advice", 1)
    return cures.get(None, lambda: recommend(opened.judged()))


def costs_of_bf16(opened: OpenedRun) -> list[str]:
    """Return what there is to know before the run is moved to BF16."""
    return bf16_costs(run_of_step(opened, None))


def subnormal_share(answer: WhatIf) -> float | None:
    """Return the share of the weight gradients that stays nonzero and loses bits; None where it is not known."""
    known = [(site.subnormal, site.elements) for site in answer.weights if site.subnormal is not None]
    elements = sum(n for _, n in known)
    return sum(share * n for share, n in known) / elements if elements else None
