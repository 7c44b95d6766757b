"""The page Ops: which operation loses values, and where the first NaN was born."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from ampdoctor.finding import Grade
from ampdoctor_dashboard.data import ops as data
from ampdoctor_dashboard.data.source_line import location
from ampdoctor_dashboard.data.step_run import nearest
from ampdoctor_dashboard.figures.ops import Place, worst_places
from ampdoctor_dashboard.figures.style import nothing
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.widgets.badges import grade_badge
from ampdoctor_dashboard.widgets.frames import card, chart, code, note, page_head
from ampdoctor_dashboard.widgets.ops import chain, columns, headline, table_rows
from ampdoctor_dashboard.widgets.step_choice import instead, step_choice, step_options
from ampdoctor_dashboard.widgets.tables import grid
from ampdoctor_dashboard.words.told import told

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from dash.development.base_component import Component

    from ampdoctor.trace.schema import OpRow
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words

BARS = 14
"""Places that are drawn."""


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    measured = grade_badge(Grade.MEASURED, words)
    metric = dmc.Select(
        id="ops-metric", data=_metrics(words), size="xs", w=230, value=context.view.metric or None, clearable=True,
        allowDeselect=False, placeholder=words("the worst kind of loss"),
        **{"aria-label": words("way of losing values")},
    )  # fmt: skip
    empty = {"localeText": {"noRowsToShow": words("no local twin has looked at this run")}}
    table = grid("ops-table", columns(words), [], height=460, getRowId="params.data.id", options=empty)
    return html.Div(
        [
            page_head(words(PAGE.title), words(PAGE.purpose), step_choice("ops-step", words)),
            html.Div(id="ops-instead", role="status"),
            card(words("What went wrong first"), html.Div(id="ops-first"), explain=_explain(words)),
            html.Div([_worst(words, metric), _inputs(words)], className="two-to-one"),
            dcc.Store(id="ops-shown"),
            card(words("All operations"), table, tools=[measured],
                 explain=words("Calls that agree in module, operation, direction, dtypes and source line are added up. "
                               "Click a row for its inputs.")),
        ]
    )  # fmt: skip


def _worst(words: Words, metric: Component) -> Component:
    explain = words("Each operation beside itself in FP32, on the same inputs. Click a bar for its inputs.")
    figure = chart("ops-figure", height=400, label=words("operations that lose most"))
    tools = [metric, grade_badge(Grade.MEASURED, words)]
    return card(words("The worst places"), figure, explain=explain, tools=tools)


def _inputs(words: Words) -> Component:
    explain = words("Of each operation's inputs the one with the largest values, back to the step's start.")
    return card(words("Where its inputs came from"), html.Div(id="ops-chain"), explain=explain)


def _explain(words: Words) -> str:
    return words("Local twins execute each operation of a step in FP32 as well, on the run's own inputs.")


def _metrics(words: Words) -> list[dict[str, str]]:
    titles = _titles(words)
    return [{"value": name, "label": titles[name]} for name in data.METRICS]


def _titles(words: Words) -> dict[str, str]:
    return {
        "born": words("elements that are born NaN or infinite"),
        "overflowed": words("elements that overflow"),
        "flushed": words("share of elements flushed [%]"),
        "energy_lost": words("share of the sum of squares lost [%]"),
        "absorbed": words("share of sums that absorb a term [%]"),
        "cancelled": words("share of elements cancelled [%]"),
        "integers_lost": words("whole numbers that are changed"),
        "relative_error": words("relative error [%]"),
    }


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""

    @app.callback(
        Output("ops-figure", "figure"),
        Output("ops-figure", "style"),
        Input("version", "data"),
        Input("view", "data"),
        Input("theme", "data"),
    )
    def draw(_: object, values: dict[str, str] | None, theme: str | None) -> Any:
        return desk.drawn_to_size(values, theme, _figure)

    @app.callback(
        Output("ops-first", "children"),
        Output("ops-chain", "children"),
        Input("version", "data"),
        Input("view", "data"),
    )
    def tell(_: object, values: dict[str, str] | None) -> Any:
        context = desk.context(values)
        rows, words = _rows(context), context.words
        if not rows:
            return _none(context), note(words("No operation was looked at."))
        born, lost = data.first_born(rows), data.first_lost(rows)
        asked = next((row for row in rows if str(row.seq) == context.view.op), None)
        row = asked or born or lost or rows[0]
        return headline(born, lost, context.run.info, words), chain(data.lineage(rows, row), words)

    @app.callback(
        Output("ops-table", "rowData"),
        Output("ops-step", "data"),
        Output("ops-step", "value"),
        Output("ops-shown", "data"),
        Output("ops-instead", "children"),
        Input("version", "data"),
        Input("view", "data"),
        State("ops-table", "rowData"),
    )
    def fill(_: object, values: dict[str, str] | None, shown: list[dict[str, Any]]) -> Any:
        context = desk.context(values)
        rows, step = table_rows(_rows(context)), _step(context)
        options = step_options(data.steps_of(context.run), context.words)
        value = None if step is None else str(step)
        other = instead(context.view.step_number, step, context.words)
        return no_update if rows == shown else rows, options, value, value, other

    _choosing(app, desk)


def _choosing(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("ops-step", "value"),
        Input("ops-metric", "value"),
        State("ops-shown", "data"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose(step: str | None, metric: str | None, shown: str | None, values: dict[str, str] | None) -> Any:
        if ctx.triggered_id == "ops-metric":
            return no_update if (values or {}).get("metric", "") == (metric or "") else chosen(metric=metric)
        return no_update if step == shown else chosen(step=step, op=None)

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("ops-table", "cellClicked"),
        Input("ops-figure", "clickData"),
        prevent_initial_call=True,
    )
    def look_into(cell: dict[str, Any] | None, bar: dict[str, Any] | None) -> Any:
        if ctx.triggered_id == "ops-table":
            return chosen(op=cell["rowId"]) if cell and cell.get("rowId") is not None else no_update
        return chosen(op=bar["points"][0]["customdata"][0]) if bar else no_update


def _step(context: Context) -> int | None:
    wanted = context.view.step_number
    return data.default_step(context.run) if wanted is None else nearest(data.steps_of(context.run), wanted)


def _rows(context: Context) -> list[OpRow]:
    return data.rows_of(context.run, _step(context))


def _figure(context: Context, style: Style) -> go.Figure:
    words, rows = context.words, _rows(context)
    if not rows:
        return nothing(style, words("no local twin has looked at this run"), words("Record one: ampdoctor run --prove"))
    metric = data.metric_for(rows, context.view.metric)
    places = [
        Place(row.seq, _name(row), location(row.file, row.line),
              f"{row.dtype_in} → {row.dtype_out}", row.direction == "backward", value)
        for row, value in data.worst(rows, metric, BARS)
    ]  # fmt: skip
    keep = f"{context.run.id}-{metric.name}"
    return worst_places(places, _titles(words)[metric.name], style, share=metric.share, keep=keep)


def _name(row: OpRow) -> str:
    where = f"{row.module} · {row.op}" if row.module else row.op
    return f"{where} #{row.seq}"


def _none(context: Context) -> Component:
    """Return why there are no operations, and how to get them."""
    words, declined = context.words, data.why_none(context.run)
    why = words("No local twin has looked at this run, so nothing is known of single operations.")
    reason = words("The last second opinion was declined: {reason}", reason=told(words, declined)) if declined else ""
    how = words("Record with --prove (and without --no-prove) to have one step's operations executed in FP32 as well:")
    command = code("ampdoctor run --prove train.py", copy=words("copy"))
    return html.Div([html.Strong(why), note(reason) if reason else "", note(how), command])


PAGE = Page(
    path="ops",
    title="Ops",
    purpose="Which operation loses values, and where was the first NaN or infinity born?",
    icon="ops",
    order=80,
    layout=layout,
    register=register,
)
