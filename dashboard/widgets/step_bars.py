"""The exponents of a site on one step, with the ranges of the formats, as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor_dashboard.data.held_in import formats_of
from ampdoctor_dashboard.data.spectrum import GRADIENTS, Band, bands_of, spectrum_at
from ampdoctor_dashboard.figures.bars import Bars, Range, bars
from ampdoctor_dashboard.figures.style import nothing

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words

SMALL, LARGE = 170, 280


def step_bars(
    run: OpenedRun, number: int, step: int, style: Style, *, unscaled: bool, only_own: bool = False
) -> go.Figure:
    """Return the figure.

    Args:
        run: the run.
        number: of the site.
        step: the step.
        style: how to draw.
        unscaled: divide the loss scale out.
        only_own: only the formats at the run's own loss scale.
    """
    words, site = style.words, run.tensors.sites[number]
    found = spectrum_at(run, number, step, unscaled=unscaled)
    if found is None:
        why = words("this site was not recorded on step {step}", step=step)
        return nothing(style, why, words("choose an examined step"), height=LARGE)
    own = formats_of(run.tensors.sites)[number]
    bands = bands_of(site.role, found.scale, unscaled=unscaled)
    ranges = [
        Range(band_name(band, words), band.number_format.name, band.edge, band.normal, band.end,
              strong=band.number_format is own and (band.scale is None or band.own))
        for band in bands if band.own or band.scale is None or not only_own
    ]  # fmt: skip
    return bars(
        Bars(found.counts, found.fp32, found.zeros, found.nonfinite, found.numel, ranges,
             exponent_title(site.role, words, unscaled=unscaled), SMALL if only_own else LARGE,
             f"{run.id}-{site.role}"),
        style,
    )  # fmt: skip


def band_name(band: Band, words: Words) -> str:
    """Return what a format's range is called."""
    title = band.number_format.title
    if band.scale is None or band.number_format.name != "fp16":
        return title
    scale = f"2^{band.scale:.4g}"
    if band.own:
        return words("{format} at the run's {scale}", format=title, scale=scale)
    return words("{format} at {scale}", format=title, scale=scale)


def exponent_title(role: str, words: Words, *, unscaled: bool) -> str:
    """Return the title of the axis of exponents."""
    if role not in GRADIENTS:
        return words("magnitude [power of 2]")
    if unscaled:
        return words("magnitude / loss scale [power of 2]")
    return words("magnitude as held [power of 2]")
