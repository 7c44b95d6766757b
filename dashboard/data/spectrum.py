"""The exponents of one site, step by step, and the ranges of the number formats that they lie in."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ampdoctor.formats import BF16, E4M3FN, E5M2, FP16, FP32, HALF_DTYPES
from ampdoctor_dashboard.data.measured import fp32_histogram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ampdoctor.formats import NumberFormat
    from ampdoctor_dashboard.data.opened import OpenedRun

GRADIENTS = frozenset({"grad_output", "weight_grad"})

USUAL_SCALES = (0, 16)
"""log2 of the loss scales whose FP16 is drawn beside the run's own: none, and where GradScaler begins."""


class Spectrum(NamedTuple):
    """The exponents of a site on each step that it was recorded on, micro-batches and calls added up.

    Attributes:
        steps: the steps.
        lowest: exponent of the first column.
        counts: steps x exponents: elements.
        zeros: elements that are zero.
        nonfinite: elements that are NaN or infinite.
        numel: all elements.
        scale: log2 of the loss scale in the values as they were held; 0 without.
        unscaled: it was divided out of `counts`.
    """

    steps: NDArray[np.int64]
    lowest: int
    counts: NDArray[np.int64]
    zeros: NDArray[np.float64]
    nonfinite: NDArray[np.float64]
    numel: NDArray[np.float64]
    scale: NDArray[np.float64]
    unscaled: bool


class AtStep(NamedTuple):
    """The exponents of a site on one step.

    Attributes:
        counts: elements by exponent.
        fp32: those of the FP32 twin, on the same axis; empty where it was not measured.
        zeros: elements that are zero.
        nonfinite: elements that are NaN or infinite.
        numel: all elements.
        scale: log2 of the loss scale in the values as they were held.
    """

    counts: dict[int, int]
    fp32: dict[int, int]
    zeros: int
    nonfinite: int
    numel: int
    scale: float


class Band(NamedTuple):
    """What a number format holds, on the axis of exponents: between `edge` and `end`, in full from `normal` up.

    Attributes:
        number_format: the format.
        scale: log2 of the loss scale that it is meant with; None where that plays no part.
        own: it is the run's own loss scale.
        edge: exponent at and below which everything is flushed.
        normal: exponent of the smallest normal number.
        end: exponent from which on everything overflows.
    """

    number_format: NumberFormat
    scale: float | None
    own: bool
    edge: float
    normal: float
    end: float


def spectrum_of(opened: OpenedRun, number: int, *, unscaled: bool, step: int | None = None) -> Spectrum:
    """Return the exponents of a site on all its steps, or on one.

    Args:
        opened: the run.
        number: of the site.
        unscaled: divide the loss scale out.
        step: only this step.
    """
    index = opened.tensors
    rows = index.rows_of(number)
    if step is not None:
        rows = rows[index.step[rows] == step]
    steps, place = np.unique(index.step[rows], return_inverse=True)
    lowest, counts = index.histograms(rows)
    scales = np.log2(np.maximum(np.nan_to_num(index.at("loss_scale", rows), nan=1.0), 2.0**-126))
    shift = -np.rint(scales).astype(np.int64) if unscaled else np.zeros(len(rows), np.int64)
    least, most = (int(shift.min()), int(shift.max())) if len(shift) else (0, 0)
    found = np.zeros((len(steps), counts.shape[1] + most - least), np.int64)
    for one in np.unique(shift).tolist():
        here = shift == one
        np.add.at(found[:, one - least : one - least + counts.shape[1]], place[here], counts[here])
    zeros, nonfinite, numel = (
        np.bincount(place, index.at(name, rows), len(steps)).astype(np.float64)
        for name in ("zeros", "nonfinite", "numel")
    )
    scale = np.zeros(len(steps))
    scale[place] = scales
    return Spectrum(steps.astype(np.int64), lowest + least, found, zeros, nonfinite, numel, scale, unscaled)


def spectrum_at(opened: OpenedRun, number: int, step: int, *, unscaled: bool) -> AtStep | None:
    """Return the exponents of a site on one step beside those of its FP32 twin; None where it was not recorded."""
    found = spectrum_of(opened, number, unscaled=unscaled, step=step)
    if not len(found.steps):
        return None
    site, scale = opened.tensors.sites[number], float(found.scale[0])
    fp32 = fp32_histogram(opened, site.role, site.module, site.slot, step)
    shift = 0 if unscaled else round(scale)
    exponents = (found.lowest + np.flatnonzero(found.counts[0])).tolist()
    counts = {e: int(found.counts[0, e - found.lowest]) for e in exponents}
    return AtStep(
        counts, {e + shift: n for e, n in fp32.items() if n}, int(found.zeros[0]), int(found.nonfinite[0]),
        int(found.numel[0]), scale,
    )  # fmt: skip


def bands_of(role: str, scale: float, *, unscaled: bool) -> tuple[Band, ...]:
    """Return what formats hold of the values of a role, FP16 at several loss scales where that plays a part.

    Args:
        role: of the site.
        scale: log2 of the run's own loss scale.
        unscaled: values are shown with the loss scale divided out.
    """
    if role not in GRADIENTS:
        return tuple(_band(f, None, own=False, moved=0.0) for f in (FP16, BF16, E5M2, E4M3FN))
    own = 0.0 if unscaled else scale
    scales = dict.fromkeys([scale, *(float(s) for s in USUAL_SCALES)])
    fp16 = [_band(FP16, s, own=s == scale, moved=own - s) for s in scales]
    return (*fp16, *(_band(f, scale, own=True, moved=own - scale) for f in (BF16, E5M2, E4M3FN)))


def _band(number_format: NumberFormat, scale: float | None, *, own: bool, moved: float) -> Band:
    f = number_format
    end = float(np.log2(f.overflow_at)) if f is not FP32 else float(f.max_exponent + 1)
    return Band(f, scale, own, f.flush_exponent + moved, f.min_exponent + moved, end + moved)


def first_choice(opened: OpenedRun) -> int | None:
    """Return the site to show where none was chosen: a gradient held in half, else of a weight, else the first."""
    sites = opened.tensors.sites
    half = (n for n, s in enumerate(sites) if s.role == "grad_output" and s.dtype in HALF_DTYPES)
    weights = (n for n, s in enumerate(sites) if s.role == "weight_grad")
    return next(chain(half, weights, range(len(sites))), None)
