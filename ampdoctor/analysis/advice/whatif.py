"""What another number format or loss scale would do to the gradients of a recorded step."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from math import floor, isnan, log2, nan
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.whatif_answer import Share, SiteShares, WhatIf
from ampdoctor.analysis.backward.propagation import Amount, Edges, flushed, passed
from ampdoctor.analysis.backward.recorded_step import Recorded, recorded_step
from ampdoctor.analysis.twins.measured import RUN, flushed_share
from ampdoctor.errors import AmpDoctorError
from ampdoctor.formats import FP32, HALF_DTYPES, NumberFormat

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.backward_stages import BackwardPass, WeightGradient
    from ampdoctor.analysis.backward.unflushed import Unflushed
    from ampdoctor.trace.schema import TensorRow, TwinRow

__all__ = ["CURVE", "Recorded", "Share", "SiteShares", "WhatIf", "measured_points", "recorded_step", "what_if"]

CURVE = range(-12, 25)
"""log2 of the loss scales of a curve."""

ROUNDING = 1e-9
"""Binades that are none: log2 of a ratio is rounded."""


def what_if(
    recorded: Recorded, number_format: NumberFormat | None = None, scale: float | None = None, sites: str = "*"
) -> WhatIf:
    """Return what becomes of the gradients in `number_format` (the run's own) at `scale` (the run's own).

    Raises:
        AmpDoctorError: no weight gradient is called like `sites`, or a scale is no positive number.
    """
    backward = recorded.backward
    fmt = number_format or backward.half or FP32
    scale = recorded.scale if scale is None else scale
    if not 0.0 < scale < float("inf"):
        raise AmpDoctorError(f"no loss scale: {scale:g}", hint="give a positive number")
    if not 0.0 < recorded.scale < float("inf"):
        raise AmpDoctorError(
            f"the loss scale of step {recorded.step} was {recorded.scale:g}", hint="ask about another step"
        )
    ratio = log2(scale / recorded.scale)
    binades = floor(ratio + ROUNDING)
    chosen = [w for w in backward.weights if fnmatchcase(w.row.site, sites)]
    if not chosen:
        raise AmpDoctorError(f"no weight gradient is called {sites!r}", hint=_names(backward))
    amounts = _amounts(backward, chosen, fmt, ratio)
    twins = _measured(recorded, fmt, scale)
    weights = tuple(_weight(w.row, a, _one(twins.get(w.row.site))) for w, a in zip(chosen, amounts, strict=True))
    outputs = tuple(
        _output(s.row, s.values, Edges.of(fmt if s.narrow else FP32, binades))
        for s in backward.stages
        if fnmatchcase(s.row.site, sites)
    )
    peaks = [s.values.absmax for s in backward.stages if s.narrow]
    peak = max((*peaks, *(w.values.absmax for w in backward.weights if w.narrow)), default=0.0)
    whole = _share(_sum(amounts), _whole([twins.get(w.row.site) for w in chosen]))
    left = any(w.flushed.measured is not None for w in weights) or any(s.values.nonzero for s in backward.stages)
    gone = all(w.values.gone for w in chosen) and not left
    if gone:  # Flushed, or zero by right: there is nothing left to tell that from.
        unknown = Share(None, *((None, None) if backward.half is None else (0.0, 1.0)))
        whole, weights = unknown, tuple(replace(w, flushed=unknown) for w in weights)
    return WhatIf(
        recorded.step, fmt, scale, scale if _whole_binades(ratio) else recorded.scale * 2.0**binades,
        backward.half, recorded.scale, whole, weights, outputs,
        overflows=peak * scale / recorded.scale >= fmt.overflow_at, gone=gone,
    )  # fmt: skip


def _whole_binades(ratio: float) -> bool:
    return abs(ratio - round(ratio)) < ROUNDING


def _amounts(backward: BackwardPass, chosen: list[WeightGradient], fmt: NumberFormat, ratio: float) -> list[Amount]:
    """Return what is flushed of each weight gradient, at a scale 2**`ratio` times the run's."""
    own = backward.half or FP32
    now, binades = passed(backward, own, 0), floor(ratio + ROUNDING)

    def at(binades: int) -> list[Amount]:
        then, room = passed(backward, fmt, binades), own.flush_exponent - fmt.flush_exponent + binades
        return [flushed(w, now, then, Edges.of(fmt if w.narrow else FP32, binades), room) for w in chosen]

    below = at(binades)
    if _whole_binades(ratio):
        return below
    above = at(binades + 1)
    return [replace(a, low=min(a.low, b.low), high=max(a.high, b.high)) for a, b in zip(below, above, strict=True)]


def _names(backward: BackwardPass) -> str:
    names = [w.row.site for w in backward.weights]
    return "there are " + ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _weight(row: TensorRow, amount: Amount, measured: float | None) -> SiteShares:
    """Return the shares of a weight gradient, what is lost on the way down to it included."""
    n, share = amount.nonzero, _share(amount, measured)
    known = n > 0.0 and not isnan(amount.estimated)
    subnormal, overflowed = (amount.subnormal / n, amount.overflowed / n) if known else (None, None)
    return SiteShares(row.site, row.role, n, share, subnormal, overflowed)


def _output(row: TensorRow, values: Unflushed, edges: Edges) -> SiteShares:
    """Return the shares of a gradient on its way, by its own size."""
    total = values.nonzero
    if not total:
        return SiteShares(row.site, row.role, 0.0, Share(None, None, None), None, None)
    gone = values.below(edges.flush)
    subnormal = values.below(edges.normal) - gone
    over = total - values.below(edges.overflow) if values.absmax >= 2.0**edges.overflow else 0.0
    return SiteShares(row.site, row.role, total, Share(gone / total, None, None), subnormal / total, over / total)


def _share(amount: Amount, measured: float | None) -> Share:
    if not amount.nonzero:
        return Share(None, None, None, measured)
    n = amount.nonzero
    guess = None if isnan(amount.estimated) else amount.estimated / n
    return Share(guess, amount.low / n, amount.high / n, measured)


def _sum(amounts: list[Amount]) -> Amount:
    """Return all `amounts` together; what can be guessed stands for the rest, unless it is the smaller part."""
    nonzero = sum(a.nonzero for a in amounts)
    known = [a for a in amounts if not isnan(a.estimated)]
    of_known = sum(a.nonzero for a in known)
    guess = sum(a.estimated for a in known)
    estimated = guess * nonzero / of_known if of_known > 0.5 * nonzero else nan
    low, high = sum(a.low for a in amounts), sum(a.high for a in amounts)
    return Amount(estimated if isnan(estimated) else min(max(estimated, low), high), low, high, nonzero)


def _measured(recorded: Recorded, fmt: NumberFormat, scale: float) -> dict[str, TwinRow]:
    """Return the rows of the twin in this setting by site; the run's own where it is the run's setting.

    Where code divides half gradients by the run's scale, it divides those of a twin at another scale by it too, which
    a real run at that scale would not do.
    """
    backward = recorded.backward
    spoilt = {w.row.site for w in backward.weights if backward.divided and w.row.dtype in HALF_DTYPES}
    found: dict[str, TwinRow] = {}
    for row in recorded.twins:
        own = row.counterfactual == RUN and fmt == backward.half
        of_setting = own or (row.number_format == fmt.name and not row.fp32_modules)
        unscaled = row.loss_scale or (recorded.scale if own else 1.0)
        if row.loss_scale != recorded.scale and row.site in spoilt:
            continue
        if row.role == "weight_grad" and of_setting and unscaled == scale:
            found.setdefault(row.site, row)
    return found


def _one(row: TwinRow | None) -> float | None:
    return flushed_share(row) if row is not None and row.nonzero else None


def _whole(rows: list[TwinRow | None]) -> float | None:
    """Return the measured share of all of `rows` together; None unless each was measured."""
    known = [r for r in rows if r is not None]
    nonzero = sum(r.nonzero for r in known)
    complete = len(known) == len(rows) and nonzero
    return sum(r.flushed for r in known) / nonzero if complete else None


def measured_points(recorded: Recorded, fmt: NumberFormat, sites: str = "*") -> dict[float, float]:
    """Return log2 of the loss scale and flushed share of what was measured in `fmt`, the run's own included."""
    chosen = [w for w in recorded.backward.weights if fnmatchcase(w.row.site, sites)]
    scales = {r.loss_scale or 1.0 for r in recorded.twins} | {recorded.scale}
    points: dict[float, float] = {}
    for scale in sorted(scales):
        rows = _measured(recorded, fmt, scale)
        share = _whole([rows.get(w.row.site) for w in chosen])
        if share is not None:
            points[log2(scale)] = share
    return points
