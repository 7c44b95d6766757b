"""Where the time of a step goes, and what other precisions take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from ampdoctor.analysis.wording import number, percent
from ampdoctor_dashboard.figures.amounts import LONGEST_TOLD, short
from ampdoctor_dashboard.figures.layouts import not_paced, setting_title
from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.theme import BLUE, CATEGORY, GREEN, ORANGE, VERMILION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampdoctor.analysis.speed import Speed
    from ampdoctor.trace.schema import PaceRow, TimingRow
    from ampdoctor_dashboard.words import Words

LONGEST_MS = 1e12
"""A time beyond it, of decades, is none."""

GROUPS_SHOWN = 12
"""Operations, dtypes and modules that have a bar of their own."""

DIRECTIONS = {"forward": BLUE, "backward": ORANGE, "step": GREEN}


@dataclass(frozen=True)
class Group:
    """One bar: its name, and its milliseconds and calls by direction."""

    name: str
    ms: dict[str, float]
    calls: dict[str, int]

    @property
    def total_ms(self) -> float:
        """The length of the bar."""
        return sum(self.ms.values())


def grouped(speed: Speed, by: Callable[[TimingRow], str | None]) -> list[Group]:
    """Return the operations of a step by a name (None leaves one out), longest first."""
    found: dict[str, Group] = {}
    for row in speed.rows:
        name, ms = by(row), speed.ms(row)
        if name is not None and 0.0 <= ms < LONGEST_MS:
            group = found.setdefault(name, Group(name, {}, {}))
            group.ms[row.direction] = group.ms.get(row.direction, 0.0) + round(ms, 9)
            group.calls[row.direction] = group.calls.get(row.direction, 0) + row.calls
    return sorted(found.values(), key=lambda group: -group.total_ms)


def time_bars(groups: Sequence[Group], whole_ms: float, style: Style, *, keep: str, why_empty: str) -> go.Figure:
    """Return a bar a group, made up of forward, backward and step; observed."""
    words = style.words
    if not groups:
        return nothing(style, why_empty)
    shown = [*groups[:GROUPS_SHOWN]]
    if rest := groups[GROUPS_SHOWN:]:
        shown.append(_rest(rest, words))
    places = [*range(len(shown))]
    figure = go.Figure()
    for direction in _directions(shown):
        name = plain(_direction_title(direction, words))
        figure.add_bar(
            y=places, x=[group.ms.get(direction, 0.0) for group in shown], orientation="h", name=name,
            marker={"color": DIRECTIONS.get(direction, VERMILION), "line": {"width": 0}},
            customdata=[_told(group, direction, whole_ms, words) for group in shown],
            hovertemplate=f"%{{customdata[0]}}<br>{name}: %{{customdata[1]}}<br>%{{customdata[2]}}<extra></extra>",
        )  # fmt: skip
    dressed(figure, style, height=110 + 23 * len(shown), keep=keep)
    legend = {"traceorder": "normal"}
    figure.update_layout(barmode="stack", bargap=0.25, legend=legend)
    ticks = [short(group.name, 30) for group in shown]
    figure.update_yaxes(autorange="reversed", tickvals=places, ticktext=ticks, tickfont={"size": 11})
    return figure.update_xaxes(title_text=words("time, observed [ms]"))


def _told(group: Group, direction: str, whole_ms: float, words: Words) -> list[str]:
    share = percent(min(group.total_ms / whole_ms, 1.0)) if whole_ms else "-"
    calls = words(
        "{ms} ms in {calls} calls", ms=number(group.ms.get(direction, 0.0)), calls=group.calls.get(direction, 0)
    )
    return [plain(group.name[:LONGEST_TOLD]), calls, words("{share} of all operations' time", share=share)]


def _rest(rest: Sequence[Group], words: Words) -> Group:
    whole = Group(words("and {count} more", count=len(rest)), {}, {})
    for group in rest:
        for direction, ms in group.ms.items():
            whole.ms[direction] = whole.ms.get(direction, 0.0) + ms
            whole.calls[direction] = whole.calls.get(direction, 0) + group.calls[direction]
    return whole


def _directions(groups: Sequence[Group]) -> list[str]:
    seen = {direction for group in groups for direction in group.ms}
    return [d for d in DIRECTIONS if d in seen] + sorted(seen - {*DIRECTIONS})


def _direction_title(direction: str, words: Words) -> str:
    titles = {"forward": words("forward"), "backward": words("backward"), "step": words("optimizer step")}
    return titles.get(direction, direction)


def pace_bars(paces: Sequence[PaceRow], style: Style, *, keep: str) -> go.Figure:
    """Return the median of the rounds in each precision with the shortest and the longest: measured."""
    words = style.words
    timed = [row for row in paces if row.wall_ms is not None and 1e-9 <= row.wall_ms < LONGEST_MS]
    if not timed:
        return nothing(
            style, words("forward and backward were not timed in other precisions"), not_paced(paces, words), height=140
        )
    medians = [row.wall_ms or 0.0 for row in timed]
    longer = [_length((row.slowest_ms or m) - m) for row, m in zip(timed, medians, strict=True)]
    shorter = [_length(m - (row.fastest_ms or m)) for row, m in zip(timed, medians, strict=True)]
    told = [
        words("{median} ms ({fastest} to {slowest}, {rounds} rounds)", median=number(m), rounds=row.rounds,
              fastest=number(row.fastest_ms or m), slowest=number(row.slowest_ms or m))
        for row, m in zip(timed, medians, strict=True)
    ]  # fmt: skip
    figure = go.Figure(
        go.Bar(
            x=medians, y=[setting_title(row, words) for row in timed], orientation="h", width=0.5, customdata=told,
            error_x={"type": "data", "symmetric": False, "array": longer, "arrayminus": shorter,
                     "color": style.theme.ink, "thickness": 1.5, "width": 6},
            marker={"color": [CATEGORY.get(row.setting, GREEN) for row in timed]},
            hovertemplate="%{y}: %{customdata}<extra></extra>",
        )
    )  # fmt: skip
    dressed(figure, style, height=240, keep=keep)
    figure.update_yaxes(autorange="reversed", type="category")
    return figure.update_xaxes(title_text=words("forward and backward, median and range, measured [ms]"))


def _length(ms: float) -> float:
    return ms if 0.0 <= ms < LONGEST_MS else 0.0
