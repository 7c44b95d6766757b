"""What another number format or loss scale would do to the gradients of a recorded step."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import floor, isnan, log2, nan
from typing import TYPE_CHECKING

from ampdoctor.analysis.backward_stages import BackwardPass, backward_pass
from ampdoctor.analysis.measured import RUN, flushed_share
from ampdoctor.analysis.propagation import Amount, flushed, passed
from ampdoctor.analysis.scaling import hand_scales
from ampdoctor.errors import AmpDoctorError
from ampdoctor.formats import FP32, NumberFormat

if TYPE_CHECKING:
    from ampdoctor.analysis.unflushed import Unflushed
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow, TwinRow

CURVE = range(-12, 25)
"""log2 of the loss scales of a curve."""


@dataclass(frozen=True)
class Share:
    """A share of the elements that are nonzero in FP32; None where there is no such element or nothing is known.

    Attributes:
        estimated: from the recorded histograms.
        low: lower bound.
        high: upper bound.
        measured: by a twin in just this setting; None where there was none.
    """

    estimated: float | None
    low: float | None
    high: float | None
    measured: float | None = None


@dataclass(frozen=True)
class SiteShares:
    """What becomes of one gradient.

    Attributes:
        site: module path and slot.
        role: weight_grad or grad_output.
        elements: estimated elements that are nonzero in FP32.
        flushed: those of them that become zero.
        subnormal: share that stays nonzero and loses bits, estimated.
        overflowed: share that becomes infinite or NaN by its own size, estimated.
    """

    site: str
    role: str
    elements: float
    flushed: Share
    subnormal: float | None
    overflowed: float | None


@dataclass(frozen=True)
class WhatIf:
    """A recorded step in a number format at a loss scale.

    Attributes:
        step: the step.
        number_format: the format of what is half in the run.
        scale: the loss scale asked about; shares are exact for powers of two, else bounds hold and the estimate is
            that of the power of two below.
        own_format: the run's half format; None for a run in FP32.
        own_scale: the run's loss scale on that step.
        total: flushed, of the weight gradients shown.
        weights: each of them.
        outputs: the gradients on their way through the model.
        overflows: the largest gradient, as far as was seen, does not fit.
    """

    step: int
    number_format: NumberFormat
    scale: float
    own_format: NumberFormat | None
    own_scale: float
    total: Share
    weights: tuple[SiteShares, ...]
    outputs: tuple[SiteShares, ...]
    overflows: bool


@dataclass(frozen=True)
class Recorded:
    """A step to ask about: its gradients, its loss scale and what twins measured of it.

    Attributes:
        step: the step.
        scale: the run's loss scale on it.
        backward: its gradients.
        twins: its twins' rows, micro-batches together.
    """

    step: int
    scale: float
    backward: BackwardPass
    twins: tuple[TwinRow, ...]


def recorded_step(run: Run, step: int | None = None) -> Recorded:
    """Return what was recorded of `step`; without one, of the last with weight gradients, if possible with a twin.

    Raises:
        AmpDoctorError: there is no such step, or it was not examined.
    """
    rows = run.tensors("weight_grad")
    examined = sorted({r.step for r in rows})
    if not examined:
        raise AmpDoctorError(
            "no gradients were recorded in this run", hint="record a few steps of its training"
        )
    if step is None:
        proven = {r.step for r in run.twins if r.role == "weight_grad"}
        step = max((s for s in examined if s in proven), default=examined[-1])
    elif step not in examined:
        shown = ", ".join(map(str, examined[:20])) + (", ..." if len(examined) > 20 else "")
        raise AmpDoctorError(
            f"step {step} has no recorded gradients", hint=f"examined steps: {shown}"
        )
    scale = _scale_of(run, [r for r in rows if r.step == step], step)
    twins = tuple(r for r in run.twins if r.step == step and r.micro_batch is None)
    return Recorded(step, scale, backward_pass(run, step, scale), twins)


def _scale_of(run: Run, rows: list[TensorRow], step: int) -> float:
    known = [r.loss_scale for r in rows if r.loss_scale]
    return known[0] if known else hand_scales(run).get(step, 1.0)


def what_if(
    recorded: Recorded,
    number_format: NumberFormat | None = None,
    scale: float | None = None,
    sites: str = "*",
) -> WhatIf:
    """Return what becomes of the gradients in `number_format` (the run's own) at `scale` (the run's own).

    Raises:
        AmpDoctorError: no weight gradient is called like `sites`, or the scale is no positive number.
    """
    backward = recorded.backward
    fmt = number_format or backward.half or FP32
    scale = recorded.scale if scale is None else scale
    if not 0.0 < scale < float("inf"):
        raise AmpDoctorError(f"no loss scale: {scale:g}", hint="give a positive number")
    ratio = log2(scale / recorded.scale)
    binades = floor(ratio + 1e-9)
    own = backward.half or FP32
    now, then = passed(backward, own, 0), passed(backward, fmt, binades)
    chosen = [w for w in backward.weights if fnmatchcase(w.row.site, sites)]
    if not chosen:
        raise AmpDoctorError(f"no weight gradient is called {sites!r}", hint=_names(backward))
    amounts = [flushed(w, now, then, fmt, binades) for w in chosen]
    twins = _measured(recorded, fmt, scale)
    weights = tuple(
        _site(
            w.row,
            w.values,
            fmt if w.narrow else FP32,
            binades,
            _share(a, _one(twins.get(w.row.site))),
        )
        for w, a in zip(chosen, amounts, strict=True)
    )
    outputs = tuple(
        _site(s.row, s.values, fmt if s.narrow else FP32, binades)
        for s in backward.stages
        if fnmatchcase(s.row.site, sites)
    )
    peaks = [s.values.absmax for s in backward.stages if s.narrow]
    peak = max((*peaks, *(w.values.absmax for w in backward.weights if w.narrow)), default=0.0)
    whole = _share(_sum(amounts), _whole([twins.get(w.row.site) for w in chosen]))
    return WhatIf(
        recorded.step, fmt, scale, backward.half, recorded.scale, whole, weights, outputs,
        overflows=peak * scale / recorded.scale >= fmt.overflow_at,
    )  # fmt: skip


def _names(backward: BackwardPass) -> str:
    names = [w.row.site for w in backward.weights]
    return "there are " + ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _site(
    row: TensorRow, values: Unflushed, fmt: NumberFormat, binades: int, share: Share | None = None
) -> SiteShares:
    """Return the shares of one site by its own size; `share` is what is flushed, the way down to it included."""
    total = values.nonzero
    if not total:
        none = Share(None, None, None)
        return SiteShares(row.site, row.role, 0.0, share or none, None, None)
    gone = values.below(fmt.flush_exponent - binades)
    subnormal = values.below(fmt.min_exponent - binades) - gone
    over = total - values.below(log2(fmt.overflow_at) - binades)
    if values.absmax * 2.0**binades < fmt.overflow_at:
        over = 0.0
    return SiteShares(
        row.site, row.role, total, share or Share(gone / total, None, None), subnormal / total, over / total,
    )  # fmt: skip


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
    return Amount(
        estimated if isnan(estimated) else min(max(estimated, low), high), low, high, nonzero
    )


def _measured(recorded: Recorded, fmt: NumberFormat, scale: float) -> dict[str, TwinRow]:
    """Return the rows of the twin in this setting by site; the run's own where it is the run's setting."""
    found: dict[str, TwinRow] = {}
    for row in recorded.twins:
        own = row.counterfactual == RUN and fmt == recorded.backward.half
        of_setting = own or (row.number_format == fmt.name and not row.fp32_modules)
        unscaled = row.loss_scale or (recorded.scale if own else 1.0)
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
