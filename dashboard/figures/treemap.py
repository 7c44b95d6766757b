"""What lived at one moment, as boxes in boxes: component, kind, module, dtype."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from ampdoctor.analysis.wording import bytes_text, percent
from ampdoctor.formats import format_of_dtype, title_of_dtype
from ampdoctor_dashboard.figures.amounts import LONGEST_TOLD, short
from ampdoctor_dashboard.figures.memory import COLORS, PALE, component_title
from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.trace.schema import MemoryRow
    from ampdoctor_dashboard.words import Words

_ROOT = "all"

CHILDREN = 14
"""Boxes in a box; smaller ones are put together."""


@dataclass
class _Box:
    """A box with those in it."""

    bytes: int = 0
    within: dict[str, _Box] = field(default_factory=dict)

    def put(self, path: Iterable[str], size: int) -> None:
        box = self
        box.bytes += size
        for name in path:
            box = box.within.setdefault(name, _Box())
            box.bytes += size


def treemap(rows: Iterable[MemoryRow], style: Style, *, keep: str) -> go.Figure:
    """Return the boxes; a click opens one. Observed."""
    words = style.words
    whole = _Box()
    for row in rows:
        whole.put(_path(row, words), row.bytes)
    if not whole.bytes:
        return nothing(style, words("nothing was counted at this moment"), words("choose another one above"))
    drawn = _Drawn(whole.bytes, words)
    drawn.add(whole, words("all"), "", "", PALE)
    figure = go.Figure(
        go.Treemap(
            ids=drawn.ids,
            labels=drawn.labels,
            parents=drawn.parents,
            values=drawn.values,
            customdata=drawn.told,
            branchvalues="total",
            marker={"colors": drawn.colors, "cornerradius": 3},
            texttemplate="%{label}<br>%{customdata[1]}",
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}, %{customdata[2]}<extra></extra>",
            tiling={"pad": 1.5},
            maxdepth=3,
            root={"color": "rgba(0,0,0,0)"},
            pathbar={"visible": True, "textfont": {"color": style.theme.ink}},
        )
    )
    dressed(figure, style, height=380, keep=keep)
    return figure.update_layout(margin={"l": 4, "r": 4, "t": 28, "b": 4}, uniformtext={"minsize": 10, "mode": "hide"})


def _path(row: MemoryRow, words: Words) -> list[str]:
    """Return the boxes that a row lies in, from outside; levels on which nothing is told apart are left out."""
    dtype = row.dtype or ""
    named = title_of_dtype(dtype) if format_of_dtype(dtype) else dtype
    module = row.module or (words("the model itself") if row.module == "" else None)
    return [part for part in (component_title(row.component, words), row.kind, module, named) if part]


@dataclass
class _Drawn:
    """The boxes as columns, which is how plotly takes them."""

    whole: int
    words: Words
    ids: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    colors: list[str] = field(default_factory=list)
    told: list[list[str]] = field(default_factory=list)

    def add(self, box: _Box, name: str, box_id: str, parent: str, color: str) -> None:
        """Add a box and all in it; small ones are put together."""
        self.ids.append(box_id or _ROOT)
        self.labels.append(short(name))
        self.parents.append(parent)
        self.values.append(box.bytes)
        self.colors.append(color)
        self.told.append([plain(name[:LONGEST_TOLD]), bytes_text(box.bytes), percent(box.bytes / self.whole)])
        largest = sorted(box.within.items(), key=lambda item: -item[1].bytes)
        shown, rest = largest[:CHILDREN], largest[CHILDREN:]
        if rest:
            more = _Box(sum(inner.bytes for _, inner in rest))
            shown.append((self.words("and {count} more", count=len(rest)), more))
        for number, (inner_name, inner) in enumerate(shown):
            inner_color = color if box_id else _color(inner_name, self.words)
            self.add(inner, inner_name, f"{box_id}/{number}", box_id or _ROOT, inner_color)


def _color(title: str, words: Words) -> str:
    return next((color for name, color in COLORS.items() if component_title(name, words) == title), PALE)
