"""What `whatif` answers: the shares of the gradients of a step in another number format or at another loss scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor.formats import NumberFormat


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
        elements: estimated elements that are nonzero in FP32; all shares are of these, and no element is in two.
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
        scale: the loss scale asked about.
        estimated_at: the scale of the estimates: the same, or where bins cannot be moved that far, being powers of two
            wide, the next one below. Bounds hold for the scale asked about.
        own_format: the run's half format; None for a run in FP32.
        own_scale: the run's loss scale on that step.
        total: flushed, of the weight gradients shown.
        weights: each of them.
        outputs: the gradients on their way through the model.
        overflows: the largest gradient, as far as was seen, does not fit.
        gone: the weight gradients shown are zero in every element, so are all that they are made from, and no twin has
            seen what they were.
    """

    step: int
    number_format: NumberFormat
    scale: float
    estimated_at: float
    own_format: NumberFormat | None
    own_scale: float
    total: Share
    weights: tuple[SiteShares, ...]
    outputs: tuple[SiteShares, ...]
    overflows: bool
    gone: bool = False
