"""The page Timeline: the vitals of a run on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
import numpy as np
from dash import Dash, Input, Output, State, html, no_update

from ampdoctor_dashboard.figures.timeline import Timeline, timeline
from ampdoctor_dashboard.figures.vitals import timeline_of
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.widgets.frames import card, chart, page_head

if TYPE_CHECKING:
    from dash.development.base_component import Component

_STEP, _TIME = "step", "time"

WAIT_S = 0.2
"""How long the figure waits for the findings that it draws as bands; they come with the next look otherwise."""


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    axis = dmc.SegmentedControl(
        id="timeline-axis",
        data=[{"value": _STEP, "label": words("over steps")}, {"value": _TIME, "label": words("over time")}],
        value=context.view.axis or _STEP,
        size="xs",
    )
    explain = words("Click a step to choose it; every page then shows that step, and the address holds it.")
    return html.Div(
        [
            page_head(words(PAGE.title), words(PAGE.purpose), axis),
            card(
                words("Vitals"),
                chart("timeline-figure", height=900, label=words("loss, loss scale, gradient and pace over the steps")),
                explain=explain,
            ),
        ]
    )


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""

    @app.callback(
        Output("timeline-figure", "figure"),
        Output("timeline-figure", "style"),
        Input("version", "data"),
        Input("view", "data"),
        Input("theme", "data"),
    )
    def draw(_: object, values: dict[str, str] | None, theme: str | None) -> Any:
        return desk.drawn_to_size(values, theme, lambda context, style: timeline(_timeline(context), style))

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("timeline-axis", "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose_axis(axis: str, values: dict[str, str] | None) -> Any:
        return no_update if (values or {}).get("axis", _STEP) == axis else chosen(axis=axis)

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("timeline-figure", "clickData"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose_step(clicked: dict[str, Any] | None, values: dict[str, str] | None) -> Any:
        if not clicked:
            return no_update
        run = desk.context(values).run
        x = float(clicked["points"][0]["x"])
        places = run.steps.elapsed_s if (values or {}).get("axis") == _TIME else run.steps.step
        return chosen(step=run.steps.step[int(np.argmin(np.abs(places - x)))])


def _timeline(context: Context) -> Timeline:
    judged = context.desk.judge.ask(context.run, WAIT_S)
    found = judged.diagnosis.findings if judged and judged.diagnosis else ()
    return timeline_of(
        context.run, context.words, found, over_time=context.view.axis == _TIME, step=context.view.step_number
    )


PAGE = Page(
    path="timeline",
    title="Timeline",
    purpose="When did it go wrong? Loss, loss scale, gradients and pace on one axis.",
    icon="timeline",
    order=20,
    layout=layout,
    register=register,
)
