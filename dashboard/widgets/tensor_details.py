"""Everything that was recorded of one tensor: its numbers, and its exponents."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
import numpy as np
from dash import dcc, html

from ampdoctor.finding import Grade
from ampdoctor.trace.schema import TABLES
from ampdoctor_dashboard.data.step_run import nearest
from ampdoctor_dashboard.widgets.badges import grade_badge
from ampdoctor_dashboard.widgets.frames import TOOLS, card, note
from ampdoctor_dashboard.widgets.labels import labelled
from ampdoctor_dashboard.widgets.metrics import role_words
from ampdoctor_dashboard.widgets.step_bars import step_bars
from ampdoctor_dashboard.widgets.step_choice import instead

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.view import View
    from ampdoctor_dashboard.words import Words

SHOWN = (
    "dtype", "shape", "numel", "zeros", "subnormal", "nan", "posinf", "neginf", "absmax", "rms", "loss_scale",
    "autocast", "cast_to", "sampled", "sample_error",
)  # fmt: skip
"""Columns of `tensors` that are shown."""

_EVEN_WITHOUT = frozenset(SHOWN[:11])
"""Those that are shown where they are null, too."""

LONGEST = 160
"""Characters of a name in a heading."""


def tensor_details(run: OpenedRun, view: View, style: Style) -> Component:
    """Return the card of the chosen site on the chosen step."""
    words, index = style.words, run.tensors
    number = index.find(view.site) if view.site else None
    if number is None or view.step_number is None:
        return card(words("The tensor"), note(words("Click a cell above to see what was recorded of that tensor.")))
    site, rows = index.sites[number], index.rows_of(number)
    step = nearest(np.unique(index.step[rows]).tolist(), view.step_number)
    if step is None:
        return card(site.name[:LONGEST], note(words("This site was not recorded on this step.")))
    here = rows[index.step[rows] == step]
    title = words("{site} on step {step}", site=site.name[:LONGEST], step=step)
    more = words("The first of {count}: one for each call and micro-batch.", count=len(here)) if len(here) > 1 else ""
    numbers = html.Div([_table(run.tensor_row(int(here[0])), words), note(more)])
    figure = step_bars(run, number, step, style, unscaled=False, only_own=True)
    graph = dcc.Graph(figure=figure, config=TOOLS, style={"height": f"{figure.layout.height}px"})
    place = html.Div(graph, role="figure", **labelled(words("exponents of the tensor")))
    link = dcc.Link(words("open its spectrum"), href="/spectrum" + view.query)
    role = role_words(words).get(site.role, site.role)
    body = html.Div([numbers, place], className="layers-details")
    return card(
        title,
        [*instead(view.step_number, step, words), body],
        tools=[note(role), grade_badge(Grade.OBSERVED, words), link],
    )


def _table(row: dict[str, Any], words: Words) -> Component:
    docs = {column.name: column for column in TABLES["tensors"].columns}
    lines = []
    for name in SHOWN:
        value = row[name]
        if value is None and name not in _EVEN_WITHOUT:
            continue
        doc = docs[name]
        unit = f" [{doc.unit}]" if doc.unit else ""
        head = dmc.Tooltip(
            html.Span(name + unit, tabIndex=0), label=words(doc.doc), multiline=True, w=300, withArrow=True,
            events={"hover": True, "focus": True, "touch": True},
        )  # fmt: skip
        lines.append(html.Tr([html.Th(head, scope="row"), html.Td(_said(name, value, row, words))]))
    return html.Table(html.Tbody(lines), className="layers-numbers")


def _said(name: str, value: Any, row: dict[str, Any], words: Words) -> str:
    if value is None:
        return words("none")
    if name == "shape":
        return " x ".join(f"{size:,}" for size in value) or words("a single number")
    if isinstance(value, float):
        power = (
            f"  (2^{log2(value):.1f})" if name in {"absmax", "rms", "loss_scale"} and 0.0 < value < float("inf") else ""
        )
        return f"{value:.6g}{power}"
    if name in {"zeros", "subnormal", "nan", "posinf", "neginf"} and value and row["numel"]:
        return f"{value:,}  ({value / row['numel']:.3%})"
    return f"{value:,}" if isinstance(value, int) else str(value)
