"""What becomes of the gradients at every loss scale: the flushed share with its bounds, and what twins measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.theme import BLUE, GREEN, ORANGE, VERMILION

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEIGHT = 420

ROOM_UNTIL = 14
"""Up to here there is room for text on the right of a line."""

MARGIN = 0.8
"""Powers of two that are shown beyond both ends."""


@dataclass(frozen=True)
class ScaleCurve:
    """What is drawn; shares go from 0 to 1, and NaN is "not known".

    Attributes:
        format: title of the number format.
        exponent: log2 of the loss scales.
        flushed: estimated share at each.
        low: its lower bound.
        high: its upper bound.
        subnormal: estimated share that loses bits.
        measured: share that a twin measured, by log2 of the scale.
        asked: log2 of the scale that is asked about.
        own: log2 of the run's own scale.
        own_title: how the run's scale is called in text.
        overflows_from: log2 of the scale from which on the largest gradient does not fit; None where it always does.
        keep: as long as this stays the same, zoom survives.
    """

    format: str
    exponent: NDArray[np.float64]
    flushed: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    subnormal: NDArray[np.float64]
    measured: dict[float, float]
    asked: float
    own: float
    own_title: str
    overflows_from: float | None = None
    keep: str = "whatif"


def scale_curve(curve: ScaleCurve, style: Style) -> go.Figure:
    """Return the shares against the loss scale."""
    words = style.words
    if not (np.isfinite(curve.flushed).any() or np.isfinite(curve.high).any() or curve.measured):
        return nothing(
            style,
            words("nothing can be predicted: every gradient asked about is zero on this step"),
            words("A twin step tells what was flushed: ampdoctor run --prove"),
            height=HEIGHT,
        )
    figure = go.Figure()
    _band(figure, curve, style)
    _lines(figure, curve, style)
    _points(figure, curve, style)
    _marks(figure, curve, style)
    dressed(figure, style, height=HEIGHT, keep=curve.keep)
    _axes(figure, curve, style)
    return figure


def _band(figure: go.Figure, curve: ScaleCurve, style: Style) -> None:
    known = np.isfinite(curve.low) & np.isfinite(curve.high)
    if not known.any():
        return
    x = curve.exponent[known]
    edge = {"mode": "lines", "line": {"width": 0, "color": BLUE}, "hoverinfo": "skip"}
    figure.add_trace(go.Scatter(x=x, y=curve.low[known], showlegend=False, **edge))
    figure.add_trace(
        go.Scatter(
            x=x, y=curve.high[known], fill="tonexty", fillcolor="rgba(0, 114, 178, 0.18)",
            name=style.words("bounds of the estimate"), **edge,
        )
    )  # fmt: skip


def _lines(figure: go.Figure, curve: ScaleCurve, style: Style) -> None:
    words = style.words
    bounds = np.stack([curve.low, curve.high], axis=1)
    figure.add_trace(
        go.Scatter(
            x=curve.exponent, y=curve.flushed, customdata=bounds, name=words("flushed (estimated)"), mode="lines",
            line={"color": BLUE, "width": 2.5},
            hovertemplate=words("%{y:.3~p} flushed, bounds %{customdata[0]:.3~p} to %{customdata[1]:.3~p}")
            + "<extra></extra>",
        )
    )  # fmt: skip
    if np.isfinite(curve.subnormal).any():
        figure.add_trace(
            go.Scatter(
                x=curve.exponent, y=curve.subnormal, name=words("subnormal (estimated)"), mode="lines",
                line={"color": ORANGE, "width": 1.5, "dash": "dot"},
                hovertemplate=words("%{y:.3~p} subnormal") + "<extra></extra>",
            )
        )  # fmt: skip


def _points(figure: go.Figure, curve: ScaleCurve, style: Style) -> None:
    if not curve.measured:
        return
    figure.add_trace(
        go.Scatter(
            x=[*curve.measured], y=[*curve.measured.values()], mode="markers", name=style.words("flushed (measured)"),
            marker={
                "size": 12, "symbol": "diamond", "color": GREEN, "line": {"color": style.theme.ground, "width": 1.5},
            },
            hovertemplate=style.words("%{y:.4~p} flushed, measured by a twin") + "<extra></extra>",
            cliponaxis=False,
        )
    )  # fmt: skip


def _marks(figure: go.Figure, curve: ScaleCurve, style: Style) -> None:
    """Draw the scales that matter; the one asked about comes first, where assets/whatif.js moves it."""
    theme, words = style.theme, style.words
    figure.add_vline(x=curve.asked, line={"color": theme.ink, "width": 2})
    if curve.overflows_from is not None:
        figure.add_vrect(
            x0=curve.overflows_from - 0.5, x1=curve.exponent[-1] + MARGIN, fillcolor=VERMILION, opacity=0.13,
            line_width=0, annotation_text=plain(words("overflows")), annotation_position="top left",
            annotation_font={"size": 11, "color": theme.bad},
        )  # fmt: skip
    own = words("the run: {scale}", scale=curve.own_title)
    shape, text = _line(curve.own, plain(own), theme.faint, "dot", 0.62)
    figure.add_shape(shape)
    figure.add_annotation(text)


def recommended_mark(exponent: float, style: Style) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the line at the recommended scale and what is written beside it, to be added to the figure."""
    text = style.words("recommended: 2^{exponent}", exponent=f"{exponent:.0f}")
    return _line(exponent, text, style.theme.good, "dash", 0.76)


def _line(x: float, text: str, color: str, dash: str, y: float) -> tuple[dict[str, Any], dict[str, Any]]:
    line = {
        "type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": color, "width": 1.5, "dash": dash},
    }  # fmt: skip
    right = x < ROOM_UNTIL
    note = {
        "x": x, "y": y, "yref": "paper", "text": text, "showarrow": False, "font": {"size": 11, "color": color},
        "xanchor": "left" if right else "right", "xshift": 5 if right else -5,
    }  # fmt: skip
    return line, note


def _axes(figure: go.Figure, curve: ScaleCurve, style: Style) -> None:
    first, last = curve.exponent[0], curve.exponent[-1]
    ticks = [e for e in range(int(first), int(last) + 1) if e % 4 == 0]
    figure.update_xaxes(
        title_text=style.words("loss scale [powers of two]"), range=[first - MARGIN, last + MARGIN],
        tickvals=ticks, ticktext=[f"2<sup>{e}</sup>" for e in ticks], zeroline=False,
    )  # fmt: skip
    figure.update_yaxes(
        title_text=style.words("elements of weight gradients [%], {format}", format=curve.format),
        tickformat=".3~p", range=[-0.02, 1.04], zeroline=False,
    )  # fmt: skip
    figure.update_layout(hovermode="x", showlegend=True)
