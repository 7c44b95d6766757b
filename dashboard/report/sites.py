"""The figures of the report that are about sites: all of them at a glance, and the worst one in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ampdoctor_dashboard.data import layers
from ampdoctor_dashboard.data.measured import twinned_steps
from ampdoctor_dashboard.data.metrics import metric_of
from ampdoctor_dashboard.data.recorded import known_sites
from ampdoctor_dashboard.data.spectrum import first_choice
from ampdoctor_dashboard.figures.amounts import short
from ampdoctor_dashboard.figures.heatmap import Colours, Heatmap, heatmap
from ampdoctor_dashboard.figures.style import nothing
from ampdoctor_dashboard.widgets.step_bars import step_bars

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words

LINES = 80
"""Lines of the heatmap: a page of paper holds no more."""

ROLE = "weight_grad"


def worst_site(opened: OpenedRun, diagnosis: Diagnosis) -> int | None:
    """Return the site that the worst finding names first; one of a gradient where none does."""
    for finding in diagnosis.findings:
        known = known_sites(opened, finding.location.sites)
        first = next((known[site] for site in finding.location.sites if site in known), None)
        if first is not None:
            return first
    return first_choice(opened)


def site_title(opened: OpenedRun, number: int | None, words: Words) -> str:
    """Return the heading of the spectrum."""
    if number is None:
        return words("Spectrum")
    site = opened.tensors.sites[number]
    return words("Spectrum of {site}", site=f"{site.name[:120]} ({site.role[:40]})")


def spectrum(opened: OpenedRun, number: int | None, style: Style) -> go.Figure:
    """Return the exponents of a site on the last step that a twin looked at, else on its last."""
    if number is None:
        return _nothing(style)
    site = opened.tensors.sites[number]
    steps = twinned_steps(opened, site.role, site.module, site.slot)
    step = steps[-1] if steps else int(opened.tensors.step[opened.tensors.rows_of(number)[-1]])
    return step_bars(opened, number, step, style, unscaled=True)


def zeros(opened: OpenedRun, style: Style) -> go.Figure:
    """Return the share of zeros in the gradients of all weights over the examined steps."""
    words = style.words
    found = layers.heat(opened, metric_of("zeros"), ROLE, frozenset(), None)
    names = [row.path or words("the whole model") for row in found.lines.rows][:LINES]
    values = found.values[:LINES]
    if not len(found.steps) or not np.isfinite(values).any():
        return _nothing(style)
    figure = heatmap(
        Heatmap(
            names,
            found.steps,
            found.starts,
            values,
            found.steps[found.where][:LINES],
            found.untold[:LINES],
            words("share of zeros, observed [%]"),
            words("all zero: nothing left to tell it from"),
            Colours(share=True, lowest=0.0, highest=1.0),
        ),
        style,
    )
    figure.update_layout(height=max(figure.layout.height, 220))
    return figure.update_yaxes(showticklabels=True, ticktext=[short(name) for name in names], automargin=True)


def _nothing(style: Style) -> go.Figure:
    words = style.words
    fill = words("tensors are recorded on examined steps: the first ones, then every N-th")
    return nothing(style, words("no tensor was recorded"), fill, height=140)
