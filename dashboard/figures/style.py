"""What all figures have in common: colours, axes, and what stands where there is nothing to draw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from ampdoctor_dashboard.theme import LIGHT, Theme
from ampdoctor_dashboard.words import Words

FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif'


@dataclass(frozen=True)
class Style:
    """How figures are drawn: in which colours, and in which language."""

    theme: Theme = LIGHT
    words: Words = field(default_factory=Words)


def plain(text: str) -> str:
    """Return a name from a trace as text that plotly draws as it is: it takes `<b>` and `<a>` for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def dressed(figure: go.Figure, style: Style, *, height: int, keep: str = "") -> go.Figure:
    """Return `figure` in the colours of `style`.

    Args:
        figure: what was drawn.
        style: how.
        height: in pixels.
        keep: as long as this stays the same, zoom and selection survive new data.
    """
    theme = style.theme
    figure.update_layout(
        height=height,
        paper_bgcolor=theme.ground,
        plot_bgcolor=theme.ground,
        font={"family": FONT, "size": 12, "color": theme.ink},
        margin={"l": 64, "r": 16, "t": 28, "b": 44},
        uirevision=keep or "kept",
        hoverlabel={"font": {"family": FONT}, "namelength": -1},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": theme.faint, "activecolor": theme.ink},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1.0, "xanchor": "right", "font": {"size": 11}},
    )
    axis = {
        "gridcolor": theme.grid,
        "zerolinecolor": theme.grid,
        "linecolor": theme.grid,
        "automargin": True,
        "exponentformat": "power",
    }
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    return figure


def nothing(style: Style, why: str, fill: str = "", *, height: int = 240) -> go.Figure:
    """Return what stands where a figure has nothing to show: why it has not, and what would fill it."""
    theme = style.theme
    figure = go.Figure()
    lines = [f"<b>{plain(why)}</b>", *([plain(fill)] if fill else [])]
    note: dict[str, Any] = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    figure.add_annotation(text="<br>".join(lines), font={"size": 13, "color": theme.faint}, **note)
    dressed(figure, style, height=height)
    hidden = {"visible": False, "fixedrange": True}
    return figure.update_layout(xaxis=hidden, yaxis=hidden)
