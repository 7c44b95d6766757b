"""Statistics of a very large tensor on the CPU from a sample of it: its histogram, zeros and rms; the rest is exact.

The tensor is cut into as many stretches as elements are drawn, one from each, at a place that its number alone decides:
no random number of the training's is used up, and the same tensor gives the same sample. Draws that don't depend on the
values nor on each other keep Hoeffding's bound (J. Am. Stat. Assoc. 58, 1963): the share of the sample that lies in any
bin is off by more than `ERROR` in one case of a hundred.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ampdoctor.record.stats.layout import HEADER, HIGHEST, LOWEST
from ampdoctor.record.stats.table import Measured
from ampdoctor.record.stats.torch_ops import flat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]

DRAWN = 1 << 16
"""Elements: enough that a share is known to a percent, and drawn in about the time that 10^6 are counted in."""

CONFIDENCE = 0.99

ERROR = math.sqrt(math.log(2.0 / (1.0 - CONFIDENCE)) / (2.0 * DRAWN))
"""Largest error of a share, with `CONFIDENCE`: 0.0064."""

_USUAL = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})

_MIX = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: spreads the bits of a number over a word (Knuth, TAOCP 6.4)."""


class Whole(NamedTuple):
    """What is known of all of a tensor that a sample was drawn of."""

    numel: int
    absmax: float


class Sample(NamedTuple):
    """The elements drawn of a tensor, one-dimensional, and what is known of all of it."""

    values: torch.Tensor
    whole: Whole


def draw(tensor: torch.Tensor) -> Sample | None:
    """Return a sample of a tensor with more than `DRAWN` elements; None of one that should be looked at whole.

    That is one with NaN or infinities, of which each counts, and one of a dtype that torch takes no extremes of.
    """
    if tensor.numel() <= DRAWN or not tensor.is_cpu or tensor.dtype not in _USUAL:
        return None
    with torch.no_grad():
        elements = flat(tensor.detach().resolve_neg())
        lowest, highest = (float(bound) for bound in torch.aminmax(elements))
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            return None
        values = elements[torch.from_numpy(_places(elements.numel()))]
    return Sample(values, Whole(elements.numel(), max(-lowest, highest, 0.0)))


@lru_cache(maxsize=8)
def _places(numel: int) -> Array:
    """Return the place of each draw: within its stretch at a number between 0 and 1 that looks random."""
    number = np.arange(DRAWN, dtype=np.uint64)
    mixed = (number + np.uint64(1)) * _MIX
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX
    share = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    places = ((number + share) * (numel / DRAWN)).astype(np.int64)
    return np.minimum(places, numel - 1)


def scaled_up(measured: Measured, samples: Mapping[int, Whole]) -> Measured:
    """Return `measured` with the rows of samples, given by number with their tensors, made estimates for all."""
    if not samples:
        return measured
    rows = measured.rows.copy()
    counts = np.split(measured.counts, np.cumsum(rows[:, HEADER + 1].astype(np.int64))[:-1])
    for row, whole in samples.items():
        rows[row], counts[row] = _scaled(rows[row], counts[row], whole)
    return Measured(rows, np.concatenate(counts))


def _scaled(head: Array, counts: Array, whole: Whole) -> tuple[Array, Array]:
    """Return counts that add up to the tensor's elements, its largest magnitude among them."""
    factor = whole.numel / DRAWN
    top = min(max(math.frexp(whole.absmax)[1] - 1, LOWEST), HIGHEST) if whole.absmax else None
    zeros, squares, first = head[0] * factor // 1, head[5] * factor, int(head[HEADER])
    counts = (counts * factor).astype(np.int64)
    if top is not None:
        first = first if len(counts) else top
        counts = np.pad(counts, (0, max(top - first + 1 - len(counts), 0)))
        counts[top - first] = max(counts[top - first], 1)
        zeros = max(min(zeros, whole.numel - counts.sum()), 0)
        counts[counts.argmax()] += whole.numel - zeros - counts.sum()
    else:
        zeros = whole.numel
    return np.array([zeros, 0, 0, 0, whole.absmax, squares, first, len(counts)]), counts
