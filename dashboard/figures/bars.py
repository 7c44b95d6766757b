"""The exponents of one tensor as bars, above the ranges that number formats hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.theme import BLUE, CATEGORY, SKY, VERMILION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LANE = 26
"""Pixels of one format's range."""


@dataclass(frozen=True)
class Range:
    """What a format holds, on the axis of exponents.

    Attributes:
        name: what it is called in the figure.
        format: name of the format, for its colour.
        edge: exponent at and below which everything is flushed.
        normal: exponent of the smallest normal number.
        end: exponent from which on everything overflows.
        strong: it is the run's own.
    """

    name: str
    format: str
    edge: float
    normal: float
    end: float
    strong: bool = False


@dataclass(frozen=True)
class Bars:
    """All that is drawn.

    Attributes:
        counts: elements by exponent.
        fp32: the same of the FP32 twin; empty where it was not measured.
        zeros: elements that are zero.
        nonfinite: elements that are NaN or infinite.
        numel: all elements.
        ranges: what formats hold.
        title: of the axis of exponents.
        height: pixels of the bars.
        keep: as long as this stays the same, zoom survives.
    """

    counts: Mapping[int, int]
    fp32: Mapping[int, int]
    zeros: int
    nonfinite: int
    numel: int
    ranges: Sequence[Range]
    title: str
    height: int = 280
    keep: str = "bars"


def bars(data: Bars, style: Style) -> go.Figure:
    """Return the exponents as bars, with zeros and what is not finite beside them and formats below."""
    words = style.words
    if not data.numel:
        return nothing(style, words("this tensor has no elements"), height=data.height)
    lanes = max(len(data.ranges), 1) * LANE
    figure = make_subplots(
        rows=2, cols=2, column_widths=[0.86, 0.14], horizontal_spacing=0.02, vertical_spacing=0.02,
        row_heights=[data.height, lanes], specs=[[{}, {}], [{}, None]],
    )  # fmt: skip
    _elements(figure, data, style)
    _outside(figure, data, style)
    for lane, held in enumerate(data.ranges):
        _lane(figure, lane, held, style)
    dressed(figure, style, height=data.height + lanes + 110, keep=data.keep)
    lowest, highest = _view(data)
    ticks = _ticks(lowest, highest)
    exponents = {"range": [lowest, highest], "tickvals": ticks, "ticktext": [f"2<sup>{t}</sup>" for t in ticks]}
    figure.update_xaxes(**exponents, showticklabels=False, row=1, col=1)
    figure.update_xaxes(**exponents, title_text=plain(data.title), matches="x", row=2, col=1)
    tallest = max([*data.counts.values(), *data.fp32.values()], default=0) / data.numel
    shares = {"tickformat": ".3~%", "fixedrange": True}
    figure.update_yaxes(
        title_text=words("share of the elements [%]"), range=[0.0, 1.12 * tallest or 1.0], **shares, row=1, col=1
    )
    figure.update_yaxes(side="right", range=[0.0, 1.05], tickvals=[0.0, 0.5, 1.0], **shares, row=1, col=2)
    figure.update_yaxes(
        tickvals=list(range(len(data.ranges))), ticktext=[plain(r.name) for r in data.ranges],
        range=[len(data.ranges) - 0.5, -0.5], showgrid=False, zeroline=False, fixedrange=True, row=2, col=1,
    )  # fmt: skip
    figure.update_layout(barmode="overlay", bargap=0.06, hovermode="closest", margin={"r": 16, "t": 40})
    return figure


def _elements(figure: go.Figure, data: Bars, style: Style) -> None:
    words = style.words
    if data.fp32:
        total = max(data.numel, 1)
        exponents = sorted(data.fp32)
        figure.add_trace(
            go.Bar(
                x=[e + 0.5 for e in exponents], y=[data.fp32[e] / total for e in exponents], width=0.94,
                name=words("FP32 twin (measured)"), customdata=[[data.fp32[e], e + 1, e] for e in exponents],
                marker={"color": "rgba(0,0,0,0)", "line": {"color": style.theme.ink, "width": 1.5}},
                hovertemplate=_said(words("in the FP32 twin (measured)")),
            ),
            row=1, col=1,
        )  # fmt: skip
    exponents = sorted(data.counts)
    figure.add_trace(
        go.Bar(
            x=[e + 0.5 for e in exponents], y=[data.counts[e] / data.numel for e in exponents], width=0.94,
            name=words("in the run (observed)"), customdata=[[data.counts[e], e + 1, e] for e in exponents],
            marker={"color": BLUE if style.theme.name == "light" else SKY, "opacity": 0.8},
            hovertemplate=_said(words("in the run (observed)")),
        ),
        row=1, col=1,
    )  # fmt: skip


def _said(where: str) -> str:
    return (
        "<b>2<sup>%{customdata[2]}</sup> … 2<sup>%{customdata[1]}</sup></b><br>%{customdata[0]:,} · %{y:.3~%}<br>"
        + plain(where)
        + "<extra></extra>"
    )


def _outside(figure: go.Figure, data: Bars, style: Style) -> None:
    words = style.words
    names = [words("zero"), words("NaN, inf")]
    counts = [data.zeros, data.nonfinite]
    figure.add_trace(
        go.Bar(
            x=names, y=[count / data.numel for count in counts], customdata=counts, showlegend=False,
            marker={"color": [style.theme.faint, VERMILION]}, width=0.6,
            hovertemplate="<b>%{x}</b><br>%{customdata:,} · %{y:.3~%}<br>" + words("in the run (observed)")
                          + "<extra></extra>",
        ),
        row=1, col=2,
    )  # fmt: skip


def _lane(figure: go.Figure, lane: int, held: Range, style: Style) -> None:
    """Draw one format: full where it is normal, pale where it loses bits, with its name on the axis."""
    words, colour = style.words, CATEGORY.get(held.format, BLUE)
    strength = 0.95 if held.strong else 0.6
    pieces = (
        (held.edge, held.normal, 0.35, words("subnormal: bits are lost")),
        (held.normal, held.end, 1.0, words("held in full")),
    )
    for begin, end, share, what in pieces:
        pattern: dict[str, Any] = {"pattern": {"shape": "/", "size": 5}} if share < 1.0 else {}
        figure.add_trace(
            go.Bar(
                x=[end - begin], base=[begin], y=[lane], orientation="h", width=0.62, showlegend=False,
                marker={"color": colour, "opacity": strength * share, **pattern},
                hovertemplate=f"<b>{plain(held.name)}</b><br>{what}<br>2<sup>{begin:.4g}</sup> … 2<sup>{end:.4g}</sup>"
                              "<extra></extra>",
            ),
            row=2, col=1,
        )  # fmt: skip
    if held.strong:
        for place in (held.edge, held.end):
            for row in (1, 2):
                figure.add_vline(x=place, line={"color": colour, "width": 1.5, "dash": "dash"}, row=row, col=1)


def _view(data: Bars) -> tuple[float, float]:
    """Return the exponents that are shown: all elements, and the narrower formats."""
    seen = [*data.counts, *data.fp32]
    narrow = [r for r in data.ranges if r.end - r.edge < 64.0]
    ends = [*seen, *(e + 1 for e in seen), *(r.edge for r in narrow if r.strong), *(r.end for r in narrow if r.strong)]
    return (min(ends) - 3.0, max(ends) + 3.0) if ends else (-30.0, 20.0)


def _ticks(lowest: float, highest: float) -> list[int]:
    apart = max(2, int((highest - lowest) / 14.0))
    return [e for e in range(int(lowest), int(highest) + 1) if e % apart == 0]
