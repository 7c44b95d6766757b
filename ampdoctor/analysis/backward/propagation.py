"""How much of each gradient a number format would flush at another loss scale, stage by stage down the backward pass.

Three things make an element of a weight gradient zero, and each is told from a histogram:

- it is itself below the format's edge: its own bins, moved by the change of scale;
- what it is made from has shrunk: a stage that keeps the share K of its energy makes everything below it smaller by
  sqrt(K). Elements lost at one stage are mostly those that the next would lose as well (small samples, unused
  features), so a path keeps what the worst of its stages keeps, and nothing where one of them keeps nothing;
- all it is made from is gone: the column of the stage that it sums over holds no survivor. If a share q of the stage
  survives, and survivors lie anywhere, that is so for (1 - q)^n of the elements, n positions summed over.

The last one is where a histogram knows least. Survivors may lie in a few positions that reach every element (then no
element loses all it is made from) or in a few columns (then 1 - q of them do): these are the bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.backward_stages import BackwardPass, Stage, WeightGradient
    from ampdoctor.analysis.backward.unflushed import Unflushed
    from ampdoctor.formats import NumberFormat

MARGIN = 1.0
"""Binades by which an element may be smaller or larger than it was in the run: terms that are rounded or gone change a
sum of few terms by about that."""

SLIGHT = 0.01
"""The run's own values are rounded too: a point more or less is within what is called known."""


@dataclass(frozen=True)
class Amount:
    """A count of elements with bounds.

    Attributes:
        estimated: best guess; NaN where there is nothing to guess from.
        low: fewest.
        high: most.
        nonzero: elements that are nonzero in high precision, estimated.
        subnormal: elements that stay nonzero and lose bits, estimated: none of those flushed.
        overflowed: elements that become infinite or NaN, estimated: none of the others.
    """

    estimated: float
    low: float
    high: float
    nonzero: float
    subnormal: float = 0.0
    overflowed: float = 0.0


@dataclass(frozen=True)
class Edges:
    """Where the range of a setting ends, as log2 of a size in the run's scale.

    Attributes:
        flush: of the largest element that is flushed.
        normal: of the smallest one that keeps all its bits.
        overflow: of the smallest one that is infinite or NaN.
    """

    flush: float
    normal: float
    overflow: float

    @classmethod
    def of(cls, fmt: NumberFormat, binades: int) -> Edges:
        """Return those of `fmt` at a loss scale 2**binades times the run's."""
        return cls(fmt.flush_exponent - binades, fmt.min_exponent - binades, math.log2(fmt.overflow_at) - binades)


@dataclass(frozen=True)
class Passed:
    """What comes through a stage.

    Attributes:
        energy: share of the energy kept on the way from the loss through this stage.
        alive: share of the elements that survive this stage.
        columns: smallest share that survives on the way here, as far up as features are not mixed.
    """

    energy: float
    alive: float
    columns: float


ALL = Passed(1.0, 1.0, 1.0)


def passed(backward: BackwardPass, fmt: NumberFormat, binades: int) -> dict[Stage, Passed]:
    """Return what comes through each stage in `fmt`, with a loss scale 2**binades times the run's."""
    through: dict[Stage, Passed] = {}
    for stage in backward.stages:
        above = through[stage.above] if stage.above is not None else ALL
        through[stage] = _through(stage, above, fmt.flush_exponent - binades)
    return through


def _through(stage: Stage, above: Passed, edge: float) -> Passed:
    mixed = stage.above is None or stage.above.features != stage.features
    columns = 1.0 if mixed else above.columns
    values = stage.values
    if above.energy <= 0.0 or (values.gone and not stage.empty):
        return Passed(0.0, 0.0, 0.0)
    if not stage.narrow or not values.nonzero:
        return Passed(above.energy, 1.0, columns)
    energy = 1.0 - values.energy_below(edge)
    alive = 1.0 - values.below(edge) / values.nonzero
    return Passed(min(above.energy, energy), alive, min(columns, alive))


def flushed(
    weight: WeightGradient, now: dict[Stage, Passed], then: dict[Stage, Passed], edges: Edges, room: int
) -> Amount:
    """Return how many elements of `weight` are flushed, and what becomes of the others.

    Args:
        weight: the gradient.
        now: what comes through in the run.
        then: what comes through in the setting asked about.
        edges: of the format that the gradient is made in there.
        room: binades that its lower edge lies below the run's: what a setting with room flushes, the run has flushed.
    """
    values = weight.values
    if values.gone:
        return _of_nothing(weight, now, room)
    total = values.nonzero
    if not total:
        return Amount(0.0, 0.0, 0.0, 0.0)
    edge = edges.flush if weight.narrow else -math.inf
    source = min(weight.stages, key=lambda s: then[s].energy, default=None)
    there, before = (then[source], now[source]) if source is not None else (ALL, ALL)
    before = ALL if weight.seen else before
    low = _own(values, edge - MARGIN, room, values.flushed_low)
    if there.energy <= 0.0:
        return Amount(total, low, total, total)
    shrunk = -0.5 * math.log2(min(1.0, there.energy / max(before.energy, 1e-12)))
    terms = _terms(weight, source)
    left, left_now = (1.0 - (1.0 - p.alive) ** terms for p in (there, before))
    dead = 1.0 - min(1.0, left / max(left_now, 1e-12))
    estimated = dead * total + (1.0 - dead) * values.below(edge + shrunk)
    own = _own(values, edge + MARGIN + shrunk, room, values.flushed_high)
    amount = _bounded(weight, estimated, low, (own, max(0.0, 1.0 - there.columns)), room)
    return _with_the_rest(amount, values, Edges(edge, edges.normal + shrunk, edges.overflow + shrunk), dead)


def _with_the_rest(amount: Amount, values: Unflushed, edges: Edges, dead: float) -> Amount:
    """Return `amount` with what becomes of the elements that are not flushed, of which a share `dead` has no source."""
    total, left = amount.nonzero, amount.nonzero - amount.estimated
    small = dead * total + (1.0 - dead) * values.below(edges.normal)
    large = (1.0 - dead) * (total - values.below(edges.overflow)) if values.absmax >= 2.0**edges.overflow else 0.0
    subnormal = min(max(small - amount.estimated, 0.0), left)
    return replace(amount, subnormal=subnormal, overflowed=min(large, left - subnormal))


def _own(values: Unflushed, edge: float, room: int, gone: float) -> float:
    """Return the elements that are flushed for being below the edge, if `gone` were in the run."""
    hidden = max(values.nonzero - values.alive, 0.0)
    below = values.below(edge)
    if room > 0:
        return below * (gone / hidden if hidden else 0.0)
    return max(below - hidden, 0.0) + gone


def _bounded(weight: WeightGradient, estimated: float, low: float, most: tuple[float, float], room: int) -> Amount:
    """Return `estimated` between its bounds; `most` are the elements below the edge and the share of dead columns."""
    values, (own, dead) = weight.values, most
    total = values.nonzero
    slight = SLIGHT * total
    high = own + dead * total + slight
    if room >= 0:  # More room flushes nothing that the run has not.
        elsewhere = 0.0 if weight.seen else dead * total
        high = min(high, values.flushed_high + elsewhere, float(values.zeros)) + slight
        estimated = min(estimated, max(total - values.alive, 0.0))
    if room == 0 and weight.seen:
        estimated = low = values.flushed_low
        high = values.flushed_high + slight
    # What is left of sums that cancel, as the gradients of many biases do, is rounding and grows with the scale.
    low = min(max(low - slight, 0.0), estimated) if len(weight.row.shape) > 1 else 0.0
    return Amount(min(estimated, total), low, max(min(high, total), estimated), total)


def _of_nothing(weight: WeightGradient, now: dict[Stage, Passed], room: int) -> Amount:
    """Return what there is to say of a gradient without a nonzero element: flushed whole, or none of it there.

    How large what is gone was, and which larger scale would hold it, nobody knows.
    """
    lost = any(now[s].energy <= 0.0 for s in weight.stages)
    total = float(weight.values.zeros) if lost else 0.0
    return Amount(math.nan, 0.0, total, total) if room > 0 else Amount(total, total, total, total)


def _terms(weight: WeightGradient, source: Stage | None) -> float:
    """Return how many positions an element is summed over."""
    if source is None:
        return math.inf
    if weight.sparse:
        return max(1.0, source.held.numel / max(weight.held.nonzero, 1))
    return max(1.0, source.held.numel / max(source.features, 1))
