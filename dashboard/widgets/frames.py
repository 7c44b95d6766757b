"""Headings, cards and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.errors import AmpDoctorError
    from ampdoctor_dashboard.words import Words

Children = Any
"""What dash takes as children: a component, text, or a list of them."""

TOOLS: Any = {
    "displaylogo": False,
    "displayModeBar": "hover",
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d"],
}
"""Settings of every figure."""


TOLD_ON = {"hover": True, "focus": True, "touch": True}
"""When an explanation is shown."""


def page_head(title: str, purpose: str, *tools: Component) -> Component:
    """Return the top of a page: its name, what it answers, and controls of the whole page."""
    return html.Div(
        [
            html.Div([dmc.Title(title, order=1, size="h3"), dmc.Text(purpose, className="faint", size="sm")]),
            html.Div(list(tools), className="tools"),
        ],
        className="page-head",
    )


def card(title: str, children: Children, *, explain: str = "", tools: Children = None) -> Component:
    """Return a part of a page with a heading; `explain` is said when one points at the heading."""
    heading: Component = dmc.Title(title, order=2, size="h5")
    if explain:
        heading = dmc.Tooltip(
            heading,
            label=explain,
            multiline=True,
            w=320,
            withArrow=True,
            events={"hover": True, "focus": True, "touch": True},
        )
    head = html.Div([heading, html.Div(tools or [], className="tools")], className="card-head")
    return html.Section([head, html.Div(children, className="card-body")], className="card")


def chart(component_id: Any, *, height: int = 260, label: str = "") -> Component:
    """Return the place of a figure that a callback draws; `label` names it to who can't see it."""
    named: dict[str, Any] = {"aria-label": label} if label else {}
    graph = dcc.Graph(id=component_id, config=TOOLS, style={"height": f"{height}px"})
    return html.Div(graph, role="figure", className="chart", **named)


def problem(error: AmpDoctorError, words: Words, *, color: str = "red") -> Component:
    """Return what stands where a page can't be shown: what is wrong (if it is, in red), and what one can do."""
    return dmc.Alert(
        [dmc.Text(error.message), *([dmc.Text(error.hint, size="sm", className="faint")] if error.hint else [])],
        title=words("This can't be shown"),
        color=color,
        className="problem",
    )


def note(text: Children) -> Component:
    """Return a remark of less weight."""
    return dmc.Text(text, size="sm", className="faint")


def code(text: str, *, copy: str) -> Component:
    """Return code with a button that copies it; `copy` is what the button is called."""
    return html.Div(
        [html.Pre(html.Code(text)), dcc.Clipboard(content=text, title=copy, className="copy")], className="code"
    )
