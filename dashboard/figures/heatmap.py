"""Values over the lines of a list and the steps, as colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from ampdoctor_dashboard.figures.style import Style, dressed, plain
from ampdoctor_dashboard.theme import VERMILION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LINE_HEIGHT = 20
"""Pixels of one line: those of the list beside it, .layers-line in assets/page-layers.css."""

TOP, BOTTOM = 48, 12
"""Pixels above and below the lines."""

LONGEST = 80
"""Characters of a name that are drawn."""

STOPS = 24


@dataclass(frozen=True)
class Colours:
    """How values become colours.

    Attributes:
        share: they lie between 0 and 1, and small ones are to be seen.
        low_is_bad: the bright end is the small one.
        lowest: value at one end; the smallest where None.
        highest: value at the other end; the largest where None.
    """

    share: bool = False
    low_is_bad: bool = False
    lowest: float | None = None
    highest: float | None = None


@dataclass(frozen=True)
class Heatmap:
    """All that is drawn.

    Attributes:
        names: of the lines, in full.
        steps: all examined steps; columns are laid out over their places.
        starts: place in `steps` of each column's first step, and one beyond the last.
        values: lines x columns; NaN where there is none.
        at_step: lines x columns: the step whose value it is.
        untold: lines x columns: recorded, but the value can't be told.
        title: what the values are, with unit and grade.
        untold_because: what is said of those.
        colours: how values become colours.
        chosen: line and step that are marked, either may be None.
        keep: as long as this stays the same, zoom survives.
        every: only every so many of the steps was looked at.
    """

    names: Sequence[str]
    steps: NDArray[np.int64]
    starts: NDArray[np.intp]
    values: NDArray[np.float64]
    at_step: NDArray[np.int64]
    untold: NDArray[np.bool_]
    title: str
    untold_because: str
    colours: Colours
    chosen: tuple[int | None, int | None] = (None, None)
    keep: str = "heatmap"
    every: int = 1


def heatmap(data: Heatmap, style: Style) -> go.Figure:
    """Return the values as colours; grey is what was not recorded."""
    words, lines = style.words, len(data.names)
    figure = go.Figure()
    edges = data.starts.astype(float) - 0.5
    said = f"<b>%{{y}}</b><br>{words('step')} %{{customdata}}<br>{plain(data.title)}: %{{z"
    number = ":.3~%" if data.colours.share else ":.4~g"
    figure.add_trace(
        go.Heatmap(
            x=edges, y=np.arange(lines), z=data.values.astype(np.float32), customdata=data.at_step.astype(np.int32),
            hoverongaps=False, hovertemplate=said + number + "}<extra></extra>", **_colours(data, style),
        )
    )  # fmt: skip
    if data.untold.any():
        note = f"<b>%{{y}}</b><br>{words('step')} %{{customdata}}<br>{plain(data.untold_because)}<extra></extra>"
        figure.add_trace(
            go.Heatmap(
                x=edges, y=np.arange(lines), z=np.where(data.untold, 1.0, np.nan).astype(np.float32),
                customdata=data.at_step.astype(np.int32), hoverongaps=False, hovertemplate=note, showscale=False,
                colorscale=[[0.0, VERMILION], [1.0, VERMILION]],
            )
        )  # fmt: skip
    dressed(figure, style, height=lines * LINE_HEIGHT + TOP + BOTTOM, keep=data.keep)
    figure.update_layout(
        margin={"l": 4, "r": 96, "t": TOP, "b": BOTTOM}, plot_bgcolor=style.theme.grid, shapes=marks(data, style)
    )
    _axes(figure, data, style)
    return figure


def marks(data: Heatmap, style: Style) -> list[dict[str, Any]]:
    """Return the frames around the line and the column that were chosen."""
    line, step = data.chosen
    frame: dict[str, Any] = {
        "type": "rect",
        "line": {"color": style.theme.bad, "width": 1.5},
        "fillcolor": "rgba(0,0,0,0)",
    }
    found = []
    if line is not None:
        across = {"xref": "x domain", "x0": 0.0, "x1": 1.0, "y0": line - 0.5, "y1": line + 0.5}
        found.append({**frame, **across})
    if step is not None and len(data.steps):
        column = int(np.searchsorted(data.starts, np.searchsorted(data.steps, step), "right")) - 1
        if 0 <= column < len(data.starts) - 1 and step in data.steps:
            ends = data.starts[column : column + 2] - 0.5
            found.append(
                {**frame, "yref": "y domain", "y0": 0.0, "y1": 1.0, "x0": float(ends[0]), "x1": float(ends[1])}
            )
    return found


def _axes(figure: go.Figure, data: Heatmap, style: Style) -> None:
    count, lines = len(data.steps), len(data.names)
    shown = np.unique(np.linspace(0, max(count - 1, 0), min(count, 12)).astype(int))
    names = [plain(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…") for name in data.names]
    figure.update_yaxes(
        range=[lines - 0.5, -0.5], fixedrange=True, tickvals=list(range(lines)), ticktext=names,
        showticklabels=False, showgrid=False, zeroline=False, automargin=False,
    )  # fmt: skip
    figure.update_xaxes(
        side="top", range=[-0.5, max(count, 1) - 0.5], tickvals=shown.tolist(),
        ticktext=[str(step) for step in data.steps[shown]] if count else [], showgrid=False, zeroline=False,
        title_text=style.words("examined step"), title_standoff=4, automargin=False,
    )  # fmt: skip


def _colours(data: Heatmap, style: Style) -> dict[str, Any]:
    """Return the colour scale: bright is bad, and of shares also small ones can be told from none."""
    colours = data.colours
    places = np.linspace(0.0, 1.0, STOPS)
    drawn = sample_colorscale("Viridis", (1.0 - places if colours.low_is_bad else places).tolist())
    lowest, highest = _ends(data)
    bar: dict[str, Any] = {"thickness": 12, "outlinewidth": 0, "len": 1.0, "lenmode": "fraction", "x": 1.01}
    if colours.share:
        scale = [[float(place) ** 3, colour] for place, colour in zip(places, drawn, strict=True)]
        bar |= {"tickvals": [0.0, 0.1, 0.25, 0.5, 1.0], "ticktext": ["0", "10 %", "25 %", "50 %", "100 %"]}
    else:
        scale = [[float(place), colour] for place, colour in zip(places, drawn, strict=True)]
    tall = len(data.names) * LINE_HEIGHT
    if tall > 420:
        bar |= {"lenmode": "pixels", "len": 400, "y": 1.0, "yanchor": "top"}
    return {"colorscale": scale, "zmin": lowest, "zmax": highest, "colorbar": bar}


def _ends(data: Heatmap) -> tuple[float, float]:
    seen = data.values[np.isfinite(data.values)]
    lowest, highest = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 1.0)
    lowest = lowest if data.colours.lowest is None else data.colours.lowest
    highest = highest if data.colours.highest is None else data.colours.highest
    return lowest, highest if highest > lowest else lowest + 1.0
