"""The exponents of one site over the steps, with the edges of number formats drawn across."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.theme import VERMILION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

COLUMNS = 600
"""Columns that are drawn: more steps than this share one, their elements added up."""

HEIGHT = 520


@dataclass(frozen=True)
class Edge:
    """What a format holds over the steps, on the axis of exponents.

    Attributes:
        name: what it is called in the figure.
        color: of its lines.
        flush: of each step the exponent at and below which everything is flushed.
        normal: likewise of the smallest normal number; None draws no subnormal range.
        end: likewise from which on everything overflows.
        own: it is the run's own format and loss scale.
    """

    name: str
    color: str
    flush: NDArray[np.float64]
    normal: NDArray[np.float64] | None
    end: NDArray[np.float64]
    own: bool = False


@dataclass(frozen=True)
class Spectrogram:
    """All that is drawn.

    Attributes:
        steps: the steps.
        lowest: exponent of the first column of `counts`.
        counts: steps x exponents: elements.
        zeros: share of the elements that are zero, by step.
        nonfinite: share of the elements that are NaN or infinite.
        edges: what formats hold.
        title: of the axis of exponents.
        why_empty: what is said where there is nothing to draw.
        chosen: the chosen step.
        keep: as long as this stays the same, zoom survives.
    """

    steps: NDArray[np.int64]
    lowest: int
    counts: NDArray[np.int64]
    zeros: NDArray[np.float64]
    nonfinite: NDArray[np.float64]
    edges: Sequence[Edge]
    title: str
    why_empty: str
    chosen: int | None = None
    keep: str = "spectrogram"


def spectrogram(data: Spectrogram, style: Style) -> go.Figure:
    """Return the exponents as colours, and below them what has no exponent: zeros, NaN and infinities."""
    words = style.words
    if not len(data.steps):
        return nothing(style, data.why_empty, words("tensors are recorded on examined steps"), height=HEIGHT)
    starts = np.unique(np.linspace(0, len(data.steps), min(COLUMNS, len(data.steps)) + 1).astype(int)[:-1])
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.05, row_heights=[0.8, 0.2])
    _colours(figure, data, starts, style)
    for edge in data.edges:
        _edge(figure, edge, style)
    _outside(figure, data, starts, style)
    dressed(figure, style, height=HEIGHT, keep=data.keep)
    _axes(figure, data, style)
    if data.chosen is not None and data.chosen in data.steps:
        place = int(np.searchsorted(data.steps, data.chosen))
        figure.add_vrect(x0=place - 0.5, x1=place + 0.5, line={"color": style.theme.bad, "width": 1.5}, row=1, col=1)
    return figure


def _colours(figure: go.Figure, data: Spectrogram, starts: NDArray[np.intp], style: Style) -> None:
    words = style.words
    counts = np.add.reduceat(data.counts, starts, axis=0).T.astype(np.float64)
    total = np.maximum(counts.sum(axis=0, keepdims=True), 1.0)
    shares = np.where(counts > 0.0, counts / total, np.nan)
    exponents = np.arange(data.lowest, data.lowest + data.counts.shape[1])
    steps = np.broadcast_to(data.steps[starts].astype(np.float64), counts.shape)
    powers = np.broadcast_to(exponents[:, None], counts.shape)
    custom = np.stack([counts, shares, steps, powers, powers + 1.0], axis=-1)
    figure.add_trace(
        go.Heatmap(
            x=np.append(starts, len(data.steps)) - 0.5, y=np.append(exponents, exponents[-1] + 1).astype(float),
            z=np.log10(shares).astype(np.float32), customdata=custom, hoverongaps=False, colorscale="Viridis",
            zmin=-5.0, zmax=0.0,
            colorbar={
                "title": {"text": words("share of the nonzero elements (observed)"), "side": "right"}, "thickness": 12,
                "tickvals": [-5, -4, -3, -2, -1, 0], "ticktext": ["0.001 %", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"],
                "len": 0.8, "y": 1.0, "yanchor": "top", "outlinewidth": 0,
            },
            hovertemplate=f"<b>{words('step')} %{{customdata[2]:d}}</b><br>2<sup>%{{customdata[3]}}</sup> … "
                          "2<sup>%{customdata[4]}</sup><br>%{customdata[0]:,} · %{customdata[1]:.3~%}<extra></extra>",
        ),
        row=1, col=1,
    )  # fmt: skip


def _edge(figure: go.Figure, edge: Edge, style: Style) -> None:
    words, x = style.words, _corners(len(edge.flush))
    width = 2.5 if edge.own else 1.25
    line: dict[str, Any] = {"color": edge.color, "width": width, "dash": "solid" if edge.own else "dash"}
    if edge.normal is not None:
        figure.add_trace(
            go.Scatter(x=x, y=_stairs(edge.flush), mode="lines", line={"width": 0}, showlegend=False,
                       legendgroup=edge.name, hoverinfo="skip"), row=1, col=1,
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=x, y=_stairs(edge.normal), mode="lines", line={"width": 0}, fill="tonexty", hoverinfo="skip",
                fillcolor=_pale(edge.color), legendgroup=edge.name, showlegend=edge.own,
                name=words("{format}: subnormal, bits are lost", format=plain(edge.name)),
            ),
            row=1, col=1,
        )  # fmt: skip
    for values, what, named in (
        (edge.flush, words("flushed below"), True), (edge.end, words("overflows above"), False)
    ):  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=x, y=_stairs(values), mode="lines", line=line, name=plain(edge.name), showlegend=named,
                legendgroup=edge.name,
                hovertemplate=f"{plain(edge.name)}: {what} 2<sup>%{{y:.4~g}}</sup><extra></extra>",
            ),
            row=1, col=1,
        )  # fmt: skip


def _outside(figure: go.Figure, data: Spectrogram, starts: NDArray[np.intp], style: Style) -> None:
    words, widths = style.words, np.diff(starts, append=len(data.steps))
    for values, name, colour in (
        (data.zeros, words("zero (observed, of any cause)"), style.theme.faint),
        (data.nonfinite, words("NaN or infinite"), VERMILION),
    ):
        figure.add_trace(
            go.Bar(
                x=starts + 0.5 * (widths - 1), y=np.maximum.reduceat(values, starts), width=widths, name=name,
                marker={"color": colour, "line": {"width": 0}},
                customdata=data.steps[starts], hovertemplate=f"{words('step')} %{{customdata}}<br>{name}: %{{y:.3~%}}"
                                                             "<extra></extra>",
            ),
            row=2, col=1,
        )  # fmt: skip


def _axes(figure: go.Figure, data: Spectrogram, style: Style) -> None:
    words, count = style.words, len(data.steps)
    shown = np.unique(np.linspace(0, count - 1, min(count, 12)).astype(int))
    figure.update_xaxes(
        tickvals=shown.tolist(), ticktext=[str(s) for s in data.steps[shown]], range=[-0.5, count - 0.5]
    )
    figure.update_xaxes(title_text=words("examined step"), row=2, col=1)
    filled = np.flatnonzero(data.counts.any(axis=0)) + data.lowest
    own = [e for e in data.edges if e.own]
    ends = [*filled[:1], *filled[-1:], *(float(e.flush.min()) for e in own), *(float(e.end.max()) for e in own)]
    lowest, highest = (min(ends) - 4.0, max(ends) + 4.0) if ends else (-30.0, 20.0)
    apart = max(2, int((highest - lowest) / 12.0))
    ticks = [e for e in range(int(lowest), int(highest) + 1) if e % apart == 0]
    figure.update_yaxes(
        title_text=plain(data.title), tickvals=ticks, ticktext=[f"2<sup>{t}</sup>" for t in ticks],
        range=[lowest, highest], row=1, col=1,
    )  # fmt: skip
    figure.update_yaxes(
        title_text=words("of all [%]"), tickformat=".3~%", range=[0.0, 1.02], fixedrange=True, row=2, col=1
    )
    figure.update_layout(barmode="stack", bargap=0.0, margin={"t": 52, "r": 96}, hovermode="closest")


def _corners(count: int) -> NDArray[np.float64]:
    edges = np.arange(count + 1) - 0.5
    return np.repeat(edges, 2)[1:-1]


def _stairs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the corners of a line with one step for each value."""
    return np.repeat(values, 2)


def _pale(color: str) -> str:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.14)"
