"""The vitals of a run over its steps, on one axis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.figures.thinning import drawable, thinned
from ampdoctor_dashboard.theme import ORANGE, SERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ROW_HEIGHT = 128
"""Pixels of one vital."""

MOST_MARKS = 400
"""Marks of a kind that are drawn one by one."""


@dataclass(frozen=True)
class Line:
    """One line: its name, and its points.

    Attributes:
        name: what it is, in the reader's language.
        x: steps or times.
        y: values; NaN where nothing was measured.
        dots: draw its points too: they are few, or stand alone.
        color: its colour; by its place in the strip where empty.
        dash: how it is dashed, as plotly calls it.
        group: lines of one group have one entry in the legend, and are hidden together.
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    dots: bool = False
    color: str = ""
    dash: str = "solid"
    group: str = ""


@dataclass(frozen=True)
class Vital:
    """One strip of the timeline.

    Attributes:
        key: name by which code asks for it (`loss`).
        title: name of the axis with its unit.
        lines: what is drawn.
        why_empty: what is said where there is nothing to draw.
        log2: the axis is of powers of two.
        log: the axis is logarithmic, where all values are positive.
        share: the axis is of shares, in percent.
    """

    key: str
    title: str
    lines: tuple[Line, ...]
    why_empty: str
    log2: bool = False
    log: bool = False
    share: bool = False


MOST_OF_SHARE = 1.02
"""Where an axis of shares ends at most: a line at 100 % is seen whole."""


@dataclass(frozen=True)
class Mark:
    """Something that happened, at places on the axis: `x` and, for a band, where it ended."""

    name: str
    x: NDArray[np.float64]
    color: str
    until: float | None = None


@dataclass(frozen=True)
class Timeline:
    """All that is drawn."""

    vitals: tuple[Vital, ...]
    marks: tuple[Mark, ...] = ()
    bands: tuple[Mark, ...] = ()
    axis_title: str = "step"
    chosen: float | None = None
    keep: str = field(default="timeline")


def timeline(data: Timeline, style: Style) -> go.Figure:
    """Return the vitals one below the other on one axis, with what happened marked in all of them."""
    if not data.vitals:
        return nothing(style, style.words("no step has been recorded yet"))
    rows = len(data.vitals)
    figure = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.22 / rows)
    for row, vital in enumerate(data.vitals, 1):
        _strip(figure, vital, row, style)
    for band in data.bands:
        figure.add_vrect(
            x0=band.x[0], x1=band.until, fillcolor=band.color, opacity=0.12, line={"color": band.color, "width": 1},
            annotation_text=plain(band.name), annotation_font_size=10, annotation_position="top left", row=1, col=1,
        )  # fmt: skip
    for mark in data.marks:
        _ticks(figure, mark, rows)
    if data.chosen is not None:
        figure.add_vline(x=data.chosen, line={"color": style.theme.ink, "width": 1, "dash": "dot"})
    dressed(figure, style, height=rows * ROW_HEIGHT + 90, keep=data.keep)
    figure.update_xaxes(title_text=data.axis_title, row=rows, col=1)
    figure.update_layout(hovermode="x unified", showlegend=True)
    return figure


def _strip(figure: go.Figure, vital: Vital, row: int, style: Style) -> None:
    drawn = [line for line in vital.lines if np.isfinite(line.y).any()]
    number = str(row) if row > 1 else ""
    place = {"xref": f"x{number} domain", "yref": f"y{number} domain"}
    title = {"text": plain(vital.title), "x": 0.0, "y": 1.0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    figure.add_annotation(font={"color": style.theme.faint, "size": 11}, **title, **place)
    if not drawn:
        note = {"text": plain(vital.why_empty), "x": 0.5, "y": 0.5, "showarrow": False, **place}
        figure.add_annotation(font={"color": style.theme.faint, "size": 12}, **note)
        figure.add_trace(go.Scatter(x=[None], y=[None], showlegend=False), row=row, col=1)
        figure.update_yaxes(showticklabels=False, range=[0.0, 1.0], fixedrange=True, row=row, col=1)
        return
    for number_of_line, line in enumerate(drawn):
        color = line.color or SERIES[(row - 1 + number_of_line) % len(SERIES)]
        named = all(line.group != trace.legendgroup for trace in figure.data) if line.group else len(drawn) > 1
        figure.add_trace(_curve(line, color, named=named), row=row, col=1)
    _axis(figure, vital, drawn, row)


def _curve(line: Line, color: str, *, named: bool) -> go.Scatter:
    kept = thinned(line.y)
    return go.Scatter(
        x=line.x[kept],
        y=drawable(line.y[kept]),
        name=plain(line.name),
        mode="lines+markers" if line.dots else "lines",
        line={"color": color, "width": 1.5, "dash": line.dash},
        marker={"size": 5},
        showlegend=named,
        legendgroup=line.group or None,
    )


def _axis(figure: go.Figure, vital: Vital, drawn: Sequence[Line], row: int) -> None:
    values = np.concatenate([drawable(line.y[np.isfinite(line.y)]) for line in drawn])
    if (vital.log or vital.log2) and (values > 0.0).all():
        figure.update_yaxes(type="log", row=row, col=1, **(_powers_of_two(values) if vital.log2 else {}))
    elif values.min() == values.max():  # plotly's own choice around one value hides how large it is
        apart = abs(values[0]) / 2.0 or 1.0
        ends = (0.0, min(MOST_OF_SHARE, values[0] + apart)) if vital.share else (values[0] - apart, values[0] + apart)
        figure.update_yaxes(range=list(ends), row=row, col=1)
    if vital.share:
        figure.update_yaxes(
            tickformat=".3~p", rangemode="tozero", minallowed=0.0, maxallowed=MOST_OF_SHARE, row=row, col=1
        )


def _powers_of_two(values: NDArray[np.float64]) -> dict[str, object]:
    lowest, highest = (int(np.floor(np.log2(v))) for v in (values.min(), values.max()))
    apart = max(1, (highest - lowest + 3) // 4)
    powers = [p for p in range(lowest - apart, highest + apart + 1, apart) if -1022 <= p <= 1000]
    ends = np.log10(2.0) * np.array([lowest - 0.6, highest + 0.6])
    return {
        "tickvals": [2.0**p for p in powers], "ticktext": [f"2<sup>{p}</sup>" for p in powers], "range": list(ends)
    }  # fmt: skip


def _ticks(figure: go.Figure, mark: Mark, rows: int) -> None:
    """Draw a mark as a symbol on the upper edge of the second strip, the loss scale's, and say it in the legend."""
    if not len(mark.x):
        return
    row = min(2, rows)
    x = mark.x[:: max(1, -(-len(mark.x) // MOST_MARKS))]
    axis = "" if row == 1 else str(row)
    figure.add_trace(
        go.Scatter(
            x=x, y=np.full(len(x), 1.0), yaxis=f"y{rows + 1}", xaxis=f"x{axis}", mode="markers", name=plain(mark.name),
            marker={"color": mark.color or ORANGE, "symbol": "triangle-down", "size": 9},
            hovertemplate=f"{plain(mark.name)}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(
        {f"yaxis{rows + 1}": {"overlaying": f"y{axis}", "range": [0.0, 1.04], "visible": False, "fixedrange": True}}
    )
