"""The page Pipeline: one mixed-precision step as a diagram, with the station that is broken lit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from ampdoctor_dashboard.data import pipeline as data
from ampdoctor_dashboard.data.call_order import made, right_order
from ampdoctor_dashboard.data.stations import Station, findings_at
from ampdoctor_dashboard.data.step_run import nearest
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.widgets.call_order import order_table
from ampdoctor_dashboard.widgets.frames import card, note, page_head
from ampdoctor_dashboard.widgets.pipeline import details, diagram, legend
from ampdoctor_dashboard.widgets.station import BAD, WARN, Shown
from ampdoctor_dashboard.widgets.stations import station_of
from ampdoctor_dashboard.widgets.step_choice import instead, step_choice, step_options
from ampdoctor_dashboard.words.told import told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dash.development.base_component import Component

    from ampdoctor.finding import Finding

WAIT_S = 0.3
"""How long the diagram waits for the findings that light its stations; they come with the next look otherwise."""


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    order = words("What a step of this kind is made of, and what was called, with the line of the training's code.")
    numbers = words("The numbers of the station that was clicked, how each was obtained, and what was found there.")
    click = words("A mixed-precision step from the weights to the weights. Click a station for its numbers.")
    return html.Div(
        [
            page_head(words(PAGE.title), words(PAGE.purpose), step_choice("pipeline-step", words)),
            html.Div(id="pipeline-instead", role="status"),
            card(words("One step"), html.Div(id="pipeline-diagram"), explain=click,
                 tools=[html.Div(id="pipeline-legend")]),
            html.Div(
                [
                    card(words("This station"), html.Div(id="pipeline-details", role="status"), explain=numbers),
                    card(words("The order of the calls"), html.Div(id="pipeline-order"), explain=order),
                ],
                className="two",
            ),
            dcc.Store(id="pipeline-shown"),
        ]
    )  # fmt: skip


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""

    @app.callback(
        Output("pipeline-diagram", "children"),
        Output("pipeline-legend", "children"),
        Output("pipeline-details", "children"),
        Output("pipeline-order", "children"),
        Output("pipeline-step", "data"),
        Output("pipeline-step", "value"),
        Output("pipeline-shown", "data"),
        Output("pipeline-instead", "children"),
        Input("version", "data"),
        Input("view", "data"),
    )
    def draw(_: object, values: dict[str, str] | None) -> Any:
        context = desk.context(values)
        words, steps = context.words, data.steps_shown(context.run)
        found = _found(context)
        step = _step(context, steps, found)
        if step is None:
            why = words("No step has been recorded yet. Stations appear with the first optimizer step.")
            return note(why), [], note(why), note(why), [], None, None, []
        facts = data.step_facts(context.run, step)
        at = findings_at(found)
        shown = {s: station_of(s, facts, at[s], words, lambda text: told(words, text)) for s in Station}
        station = _station(context, shown)
        return (
            diagram(shown, station, facts.half, words),
            legend(facts.half, words),
            details(station, shown[station], facts.ran, at[station], step, context.view, words),
            order_table(made(facts.calls, applied=facts.row.applied if facts.row else None),
                        right_order(facts.calls), words),
            step_options(steps, words, _proven(context)),
            str(step),
            str(step),
            instead(context.view.step_number, step, words),
        )  # fmt: skip

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input({"pipeline-station": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def look_into(_: list[int | None]) -> Any:
        clicked = ctx.triggered_id
        if not clicked or not ctx.triggered[0]["value"]:
            return no_update
        return chosen(station=clicked["pipeline-station"])

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("pipeline-step", "value"),
        State("pipeline-shown", "data"),
        prevent_initial_call=True,
    )
    def choose_step(step: str | None, shown: str | None) -> Any:
        return no_update if step == shown else chosen(step=step)


def _found(context: Context) -> tuple[Finding, ...]:
    judged = context.desk.judge.ask(context.run, WAIT_S)
    return judged.diagnosis.findings if judged and judged.diagnosis else ()


def _step(context: Context, steps: list[int], found: tuple[Finding, ...]) -> int | None:
    wanted = context.view.step_number
    return data.default_step(context.run, found) if wanted is None else nearest(steps, wanted)


def _station(context: Context, shown: Mapping[Station, Shown]) -> Station:
    """Return the station that was clicked; without one the first that is broken, or else the first."""
    if context.view.station in {station.value for station in Station}:
        return Station(context.view.station)
    for health in (BAD, WARN):
        broken = next((station for station in Station if shown[station].health == health), None)
        if broken is not None:
            return broken
    return Station.FORWARD


def _proven(context: Context) -> set[int]:
    return set(context.run.table("twins")["step"].unique().to_pylist())


PAGE = Page(
    path="pipeline",
    title="Pipeline",
    purpose="What happens to the numbers on their way through one step, and where does it break?",
    icon="pipeline",
    order=60,
    layout=layout,
    register=register,
)
