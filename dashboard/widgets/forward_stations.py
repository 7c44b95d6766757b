"""The stations from the weights to the loss."""

from __future__ import annotations

from math import isfinite, isnan
from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import number, percent
from ampdoctor.finding import Grade
from ampdoctor.formats import HALF_DTYPES, format_of_dtype, title_of_dtype
from ampdoctor_dashboard.widgets.station import (
    BAD,
    UNKNOWN,
    UNUSED,
    WARN,
    Fact,
    Shown,
    broken,
    named,
    spread,
    unrecorded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor_dashboard.data.pipeline import StepFacts, Values
    from ampdoctor_dashboard.words import Words


def weights(facts: StepFacts, words: Words) -> Shown:
    """Return what the weights have to say."""
    values = facts.of("weight")
    shown = Shown(dtypes=facts.weights or tuple(v.dtype for v in values), values=values)
    if facts.stuck is not None:
        shown.facts.append(Fact(words("weights that should move and do not"), percent(facts.stuck.share)))
    shown.facts += [
        *([Fact(words("elements"), f"{sum(v.elements for v in values):,}")] if values else []), *spread(values, words)
    ]  # fmt: skip
    if HALF_DTYPES & set(shown.dtypes):
        shown.health = WARN
        shown.says = words("held in {dtype}: there are no FP32 master weights", dtype=named(shown.dtypes))
    elif shown.dtypes:
        shown.says = words("held in {dtype}", dtype=named(shown.dtypes))
    else:
        shown.health, shown.says = UNKNOWN, unrecorded(facts, words)
    return broken(shown, facts, "weight", words)


def cast(facts: StepFacts, words: Words) -> Shown:
    """Return what the casts of autocast have to say."""
    if not facts.autocast:
        if facts.half is None:
            return Shown(UNUSED, words("not used: everything is computed in FP32"))
        return Shown(
            UNUSED,
            words("not used: autocast is off, and the model itself is in {dtype}", dtype=title_of_dtype(facts.half)),
        )
    shown = Shown(says=words("autocast to {dtype}", dtype=named(facts.autocast)), dtypes=facts.autocast)
    if facts.casts is not None:
        shown.facts.append(Fact(words("flushed in casts"), percent(facts.casts.share), Grade.MEASURED))
    return shown


def forward(facts: StepFacts, words: Words) -> Shown:
    """Return what the forward pass has to say."""
    values = facts.of("activation")
    if not values and not facts.ran:
        return Shown(UNKNOWN, unrecorded(facts, words))
    dtypes = tuple(dict.fromkeys([*(v.dtype for v in values), *(r.dtype for r in facts.ran)]))
    shown = Shown(says=words("computed in {dtype}", dtype=named(dtypes)), dtypes=dtypes, values=values)
    shown.facts += [*_room(values, words), *spread(values, words)]
    return broken(shown, facts, "activation", words)


def _room(values: Sequence[Values], words: Words) -> list[Fact]:
    """Return how far the largest value is from the end of the first half format, in powers of two."""
    for v in values:
        number_format = format_of_dtype(v.dtype)
        if v.dtype in HALF_DTYPES and number_format is not None and v.highest is not None:
            name = words("powers of two below the largest {dtype} number", dtype=number_format.title)
            return [Fact(name, str(number_format.max_exponent - v.highest))]
    return []


def loss(facts: StepFacts, words: Words) -> Shown:
    """Return what the loss has to say."""
    loss = facts.row.loss if facts.row else None
    if loss is None:
        return Shown(UNKNOWN, words("no backward() from a scalar was seen on this step"))
    dtypes = tuple(dict.fromkeys(ran.dtype for ran in facts.ran if ran.kind == "loss"))
    shown = Shown(dtypes=dtypes, facts=[Fact(words("loss"), "NaN" if isnan(loss) else number(loss))])
    shown.says = words("computed in {dtype}", dtype=named(dtypes)) if dtypes else ""
    if facts.loss_fp32 is not None:
        shown.facts.append(Fact(words("loss of the FP32 twin"), number(facts.loss_fp32), Grade.MEASURED))
    if not isfinite(loss):
        shown.health, shown.says = BAD, words("the loss is not finite")
    elif HALF_DTYPES & set(dtypes):
        shown.health = WARN
    return shown
