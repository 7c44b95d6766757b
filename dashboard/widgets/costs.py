"""Numbers in a row, and advice: what the page Memory and speed says in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import dash_mantine_components as dmc
from dash import html

from ampdoctor.analysis.wording import bytes_text, number
from ampdoctor_dashboard.widgets.badges import grade_badge
from ampdoctor_dashboard.widgets.frames import TOLD_ON, note
from ampdoctor_dashboard.widgets.prose import prose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from ampdoctor.analysis.memory.advice import Advice
    from ampdoctor.finding import Grade
    from ampdoctor_dashboard.words import Words


class Figure(NamedTuple):
    """One number: what it is, itself, how it was obtained, and what it means."""

    title: str
    value: str
    grade: Grade | None
    explain: str


def numbers(figures: Sequence[Figure], words: Words) -> Component:
    """Return numbers side by side, each with its name, its grade and an explanation."""
    return html.Div([_number(figure, words) for figure in figures], className="numbers")


def _number(figure: Figure, words: Words) -> Component:
    title = dmc.Tooltip(
        html.Span(figure.title, className="faint", tabIndex=0), label=figure.explain, multiline=True, w=280,
        withArrow=True, events=TOLD_ON,
    )  # fmt: skip
    value: list[Component] = [html.Span(figure.value, className="number-value")]
    if figure.grade is not None:
        value.append(grade_badge(figure.grade, words))
    return html.Div([title, html.Div(value, className="number-line")], className="number")


def advice_list(advised: Sequence[Advice], words: Words) -> Component:
    """Return what would take less memory, the largest saving first, with what it costs."""
    if not advised:
        return note(words("nothing that was tried would save 2 % of the peak or more"))
    return html.Ol([_advice(each, words) for each in advised], className="advice")


def _advice(advice: Advice, words: Words) -> Component:
    head: list[Component] = [
        html.Span(words("saves up to {amount}", amount=bytes_text(advice.saves_bytes)), className="advice-saves"),
        grade_badge(advice.grade, words),
    ]
    if advice.costs_ms is not None:
        cost = words("costs {ms} ms a step", ms=number(advice.costs_ms))
        head.append(html.Span(cost, className="faint"))
    return html.Li([html.Div(head, className="number-line"), html.P(prose(words, advice.text))])
