"""One thing over the steps, small: beside the sentence that it is the evidence for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.figures.thinning import thinned
from ampdoctor_dashboard.theme import BLUE

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEIGHT = 148
"""Pixels."""

FEW = 40
"""Points of a line that are also shown as dots."""

MOST_POINTS = 400
"""Points of a line: it is not wide."""

LARGEST = 1e150
"""Larger values are drawn as this: the axis around them would be beyond what a browser can count with."""

SPAN = 100.0
"""A line whose largest value is so many times its smallest is drawn over powers of ten."""


@dataclass(frozen=True)
class Sparkline:
    """What is drawn.

    Attributes:
        title: what it is, with its unit.
        x: steps.
        y: values; NaN where nothing was measured.
        begin: the first step that a finding is about; None for no mark.
        end: the last one.
        share: values are shares.
    """

    title: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    begin: int | None = None
    end: int | None = None
    share: bool = False


def sparkline(data: Sparkline, style: Style) -> go.Figure:
    """Return a small chart, with the steps that a finding is about shaded."""
    data = replace(data, y=np.where(np.isfinite(data.y), np.clip(data.y, -LARGEST, LARGEST), np.nan))
    finite = data.y[np.isfinite(data.y)]
    if not len(finite):
        return nothing(style, data.title, style.words("not a single finite value was recorded"), height=HEIGHT)
    figure = go.Figure(_line(data))
    if data.begin is not None:
        end = data.begin if data.end is None else data.end
        figure.add_vrect(x0=data.begin, x1=end, fillcolor=style.theme.bad, opacity=0.10, line_width=0)
        figure.add_vline(x=data.begin, line={"color": style.theme.bad, "width": 1, "dash": "dot"})
    title = {"text": plain(data.title), "x": 0.0, "y": 1.0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    figure.add_annotation(xref="paper", yref="paper", font={"size": 11, "color": style.theme.faint}, **title)
    dressed(figure, style, height=HEIGHT)
    figure.update_layout(margin={"l": 48, "r": 10, "t": 24, "b": 34}, showlegend=False, font={"size": 10})
    figure.update_xaxes(title={"text": style.words("step"), "standoff": 4}, nticks=6)
    figure.update_yaxes(nticks=4)
    _scale(figure, finite, share=data.share)
    return figure


def _line(data: Sparkline) -> go.Scatter:
    kept = thinned(data.y, MOST_POINTS)
    mode = "lines+markers" if len(kept) <= FEW else "lines"
    return go.Scatter(
        x=data.x[kept], y=data.y[kept], mode=mode, line={"color": BLUE, "width": 1.5}, marker={"size": 4},
        hovertemplate="%{x}: %{y}<extra></extra>",
    )  # fmt: skip


def _scale(figure: go.Figure, finite: NDArray[np.float64], *, share: bool) -> None:
    lowest, highest = float(finite.min()), float(finite.max())
    if share:
        top = highest or 0.01  # nothing but zeros: an axis of zero height would be none
        figure.update_yaxes(tickformat=".3~p", range=[-0.03 * top, 1.08 * top])
    elif lowest > 0.0 and highest > SPAN * lowest:
        figure.update_yaxes(type="log")
    elif lowest == highest:  # plotly's own choice around one value hides how large it is
        apart = abs(lowest) / 2.0 or 1.0
        figure.update_yaxes(range=[lowest - apart, lowest + apart])
