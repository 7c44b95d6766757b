"""The operations that lose most, as bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.theme import BLUE, ORANGE

if TYPE_CHECKING:
    from collections.abc import Sequence

BAR = 26
"""Pixels of one bar."""

LONGEST = 54
"""Characters of a name beside its bar; all of it is told when one points at the bar."""


@dataclass(frozen=True)
class Place:
    """One operation.

    Attributes:
        seq: its order within the step.
        name: module and operation.
        where: its source line; empty where it is not known.
        dtypes: what it computes in.
        backward: it belongs to the backward pass.
        value: what is lost there.
    """

    seq: int
    name: str
    where: str
    dtypes: str
    backward: bool
    value: float


def worst_places(places: Sequence[Place], title: str, style: Style, *, share: bool, keep: str = "ops") -> go.Figure:
    """Return bars of what is lost where, the worst on top."""
    words = style.words
    if not places:
        return nothing(
            style, words("nothing is lost in this way on this step"), words("Choose another way of losing values.")
        )
    figure = go.Figure()
    for backward, name, color, pattern in (
        (False, words("forward"), BLUE, ""), (True, words("backward"), ORANGE, "/"),
    ):  # fmt: skip
        some = [(n, place) for n, place in enumerate(places) if place.backward is backward]
        if some:
            figure.add_trace(_bars(some, name, color, pattern))
    dressed(figure, style, height=BAR * len(places) + 110, keep=keep)
    figure.update_xaxes(title_text=title, tickformat=".3~p" if share else "~s", rangemode="tozero")
    figure.update_yaxes(
        tickvals=[*range(len(places))], ticktext=[plain(_cut(place.name)) for place in places], autorange="reversed",
        title_text=words("operation"),
    )  # fmt: skip
    figure.update_layout(showlegend=True, bargap=0.35)
    return figure


def _bars(some: list[tuple[int, Place]], name: str, color: str, pattern: str) -> go.Bar:
    told = [[place.seq, plain(place.name), plain(place.where), plain(place.dtypes)] for _, place in some]
    return go.Bar(
        x=[place.value for _, place in some], y=[n for n, _ in some], orientation="h", name=name, customdata=told,
        marker={"color": color, "pattern": {"shape": pattern, "solidity": 0.25}},
        hovertemplate="<b>%{customdata[1]}</b><br>%{customdata[2]}<br>%{customdata[3]}<br>%{x}<extra></extra>",
    )  # fmt: skip


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else "…" + name[-LONGEST + 1 :]
