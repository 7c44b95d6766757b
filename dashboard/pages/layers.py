"""The page Layers: one number of every site on every examined step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
import numpy as np
from dash import Dash, Input, Output, Patch, State, ctx, dcc, html, no_update

from ampdoctor.errors import AmpDoctorError
from ampdoctor.finding import Grade
from ampdoctor_dashboard.data import layers as data
from ampdoctor_dashboard.data.metrics import METRICS, Metric, metric_of
from ampdoctor_dashboard.figures.heatmap import Colours, Heatmap, heatmap, marks
from ampdoctor_dashboard.figures.style import nothing
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.widgets.badges import grade_badge
from ampdoctor_dashboard.widgets.frames import TOOLS, card, note, page_head
from ampdoctor_dashboard.widgets.labels import labelled
from ampdoctor_dashboard.widgets.metrics import metric_words, role_words
from ampdoctor_dashboard.widgets.module_tree import module_tree
from ampdoctor_dashboard.widgets.tensor_details import tensor_details

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from dash.development.base_component import Component

    from ampdoctor_dashboard.data.tree import Lines
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words

ROLE = "weight_grad"


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    figure = html.Div(dcc.Graph(id="layers-figure", config=TOOLS), role="figure", className="layers-chart",
                      **labelled(words("the chosen number of each module over the examined steps")))  # fmt: skip
    tree = html.Div(id="layers-tree", className="layers-tree", role="group", **labelled(words("modules")))
    shown = html.Div([tree, figure], className="layers-body", tabIndex=0)
    explain = words(
        "A module shows what lies in it as one: sums of counts, and the worst of what does not add up. Where steps "
        "share a column, it shows the worst of them; zoom in to see each."
    )
    return html.Div(
        [
            page_head(words(PAGE.title), words(PAGE.purpose), *_controls(context)),
            card(
                words("Sites by steps"),
                [html.Div(id="layers-legend", className="layers-legend"), shown],
                explain=explain,
                tools=[html.Div(id="layers-grade")],
            ),
            html.Div(id="layers-details"),
            dcc.Store(id="layers-asked"),
            dcc.Store(id="layers-window"),
            dcc.Store(id="layers-drawn"),
        ]
    )


def _controls(context: Context) -> list[Component]:
    words, metrics = context.words, metric_words(context.words)
    return [
        dmc.Select(id="layers-role", data=[], size="xs", w=190, allowDeselect=False, **labelled(words("role"))),
        dmc.Select(
            id="layers-metric", data=[{"value": m.key, "label": metrics[m.key][0]} for m in METRICS],
            value=metric_of(context.view.metric).key, size="xs", w=330, allowDeselect=False,
            **labelled(words("metric")),
        ),
    ]  # fmt: skip


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""
    _drawing(app, desk)
    _choosing(app, desk)
    _zooming(app)

    @app.callback(
        Output("layers-details", "children"), Input("version", "data"), Input("view", "data"), Input("theme", "data")
    )
    def details(_: object, values: dict[str, str] | None, theme: str | None) -> Any:
        try:
            context = desk.context(values)
            return tensor_details(context.run, context.view, desk.style(values, theme))
        except AmpDoctorError as error:
            return note(error.message)


def _drawing(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("layers-role", "data"),
        Output("layers-role", "value"),
        Input("version", "data"),
        Input("view", "data"),
        State("layers-role", "data"),
    )
    def offer(_: object, values: dict[str, str] | None, offered: list[Any]) -> Any:
        context = desk.context(values)
        names = role_words(context.words)
        roles = [{"value": r, "label": names.get(r, r)} for r in data.roles_of(context.run.tensors)]
        return no_update if roles == offered else roles, _role(context)

    @app.callback(
        Output("layers-figure", "figure"),
        Output("layers-figure", "style"),
        Output("layers-tree", "children"),
        Output("layers-legend", "children"),
        Output("layers-grade", "children"),
        Output("layers-drawn", "data"),
        Input("version", "data"),
        Input("view", "data"),
        Input("theme", "data"),
        Input("layers-window", "data"),
        State("layers-drawn", "data"),
    )
    def draw(version: Any, values: dict[str, str] | None, theme: str | None, window: Any, drawn: Any) -> Any:
        style = desk.style(values, theme)
        try:
            context = desk.context(values)
            view = context.view
            picture = [version, theme, window, view.run, view.rank, view.lang, view.role, view.metric, view.open]
            shown = _heatmap(context, window) if picture != drawn else _marked(context)
            if picture == drawn:
                patch = Patch()
                patch["layout"]["shapes"] = marks(shown, style)
                tree = module_tree(_lines(context), context.run.tensors.sites, view.site, context.words)
                return patch, no_update, tree, no_update, no_update, no_update
            return (*_drawn(context, shown, style), picture)
        except AmpDoctorError as error:
            figure = nothing(style, error.message, error.hint)
            return figure, {"height": "240px"}, [], [], [], None


def _drawn(context: Context, shown: Heatmap, style: Style) -> tuple[Any, ...]:
    words, metric = context.words, metric_of(context.view.metric)
    title, explain = metric_words(words)[metric.key]
    told = dmc.Tooltip(
        html.Span(title, tabIndex=0, className="told"), label=explain, multiline=True, w=340, withArrow=True,
        events={"hover": True, "focus": True, "touch": True},
    )  # fmt: skip
    grade = html.Div([told, grade_badge(metric.grade, words)], className="tools")
    figure = _empty(metric, style) if _is_empty(shown) else heatmap(shown, style)
    lines = _lines(context)
    tree = module_tree(lines, context.run.tensors.sites, context.view.site, words)
    return figure, {"height": f"{figure.layout.height}px"}, tree, _legend(shown, lines, words), grade


def _is_empty(shown: Heatmap) -> bool:
    return not len(shown.steps) or (not shown.untold.any() and not (shown.values == shown.values).any())


def _empty(metric: Metric, style: Style) -> go.Figure:
    words = style.words
    if metric.grade is Grade.MEASURED:
        return nothing(
            style, words("no step was twinned with tensors of this role"),
            words("record with ampdoctor run --prove, and choose gradients or activations"), height=360,
        )  # fmt: skip
    return nothing(
        style, words("no tensor of this role was recorded"),
        words("tensors are recorded on examined steps: the first ones, then every N-th"), height=360,
    )  # fmt: skip


def _legend(shown: Heatmap, lines: Lines, words: Words) -> list[Component]:
    said: list[Component] = [
        html.Span(words("Click a module to unfold it, a cell to see the tensor behind it; drag across to zoom in.")),
        html.Span([html.Span(className="layers-swatch layers-swatch-none"), words("not recorded")]),
    ]
    if shown.untold.any():
        swatch = html.Span(className="layers-swatch layers-swatch-untold")
        said.append(html.Span([swatch, shown.untold_because]))
    if shown.every > 1:
        told = words("one examined step in {every} is estimated; zoom in for the others", every=shown.every)
        said.append(html.Span(told))
    if lines.left_out:
        said.append(html.Span(words("{count} more lines are not shown: fold modules", count=lines.left_out)))
    return said


def _heatmap(context: Context, window: list[float] | None) -> Heatmap:
    words, view, metric = context.words, context.view, metric_of(context.view.metric)
    found = data.heat(context.run, metric, _role(context), view.opened_modules, _wider(window))
    lines = found.lines.rows
    return Heatmap(
        [row.path or words("the whole model") for row in lines], found.steps, found.starts, found.values,
        found.steps[found.where] if len(found.steps) else found.where, found.untold,
        metric_words(words)[metric.key][0], words("all zero: nothing left to tell it from"), _colours(metric),
        (_line_of_site(context, found.lines), view.step_number),
        keep=f"{context.run.id}-{context.run.rank}-{_role(context)}", every=found.every,
    )  # fmt: skip


def _marked(context: Context) -> Heatmap:
    """Return the heatmap without values: what the frames around the chosen line and column need."""
    lines = _lines(context)
    steps = data.steps_of(context.run, _role(context))
    blank: Any = np.zeros((len(lines.rows), 0))
    chosen_cell = (_line_of_site(context, lines), context.view.step_number)
    return Heatmap([row.path for row in lines.rows], steps, np.arange(len(steps) + 1), blank, blank, blank, "", "",
                   Colours(), chosen_cell)  # fmt: skip


def _wider(window: list[float] | None) -> tuple[float, float] | None:
    """Return more than is shown, so that one can move a little before anything is asked for."""
    half = (window[1] - window[0]) / 2.0 if window else 0.0
    return (window[0] - half, window[1] + half) if window else None


def _colours(metric: Metric) -> Colours:
    if metric.is_share:
        return Colours(share=True, lowest=0.0, highest=1.0)
    return Colours(low_is_bad=metric.low_is_bad, highest=1.0 if metric.key == "cosine" else None)


def _role(context: Context) -> str:
    roles = data.roles_of(context.run.tensors)
    return context.view.role if context.view.role in roles else ROLE if ROLE in roles or not roles else roles[0]


def _lines(context: Context) -> Lines:
    return data.lines_shown(context.run, _role(context), context.view.opened_modules)


def _line_of_site(context: Context, lines: Lines) -> int | None:
    number = context.run.tensors.find(context.view.site) if context.view.site else None
    line = int(lines.of_site[number]) if number is not None else -1
    return line if line >= 0 else None


def _choosing(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("layers-role", "value"),
        Input("layers-metric", "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose(role: str | None, metric: str | None, values: dict[str, str] | None) -> Any:
        context = desk.context(values)
        now = {"role": _role(context), "metric": metric_of(context.view.metric).key}
        asked = {"role": role, "metric": metric}
        return no_update if asked == now or None in asked.values() else chosen(**asked)

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("layers-asked", "data"),
        Input("layers-figure", "clickData"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def press(asked: dict[str, Any] | None, clicked: dict[str, Any] | None, values: dict[str, str] | None) -> Any:
        context = desk.context(values)
        if ctx.triggered_id == "layers-figure":
            return _of_cell(context, clicked["points"][0]) if clicked else no_update
        if not asked:
            return no_update
        if asked.get("module") is not None:
            return chosen(open="~".join(sorted(context.view.opened_modules ^ {asked["module"]})))
        return chosen(site=asked["site"]) if asked.get("site") else no_update


def _of_cell(context: Context, point: dict[str, Any]) -> Any:
    lines, line, step = _lines(context), int(point["y"]), int(point["customdata"])
    if not 0 <= line < len(lines.rows):
        return no_update
    run = context.run
    site = data.worst_site(run, metric_of(context.view.metric), _role(context), lines, line, step)
    return chosen(step=step, site=run.tensors.sites[site].key) if site is not None else chosen(step=step)


def _zooming(app: Dash) -> None:
    @app.callback(
        Output("layers-window", "data"),
        Input("layers-figure", "relayoutData"),
        State("layers-window", "data"),
        prevent_initial_call=True,
    )
    def zoom(moved: dict[str, Any] | None, window: list[float] | None) -> Any:
        moved = moved or {}
        if "xaxis.range[0]" in moved:
            return [float(moved["xaxis.range[0]"]), float(moved["xaxis.range[1]"])]
        asked_for_all = moved.get("xaxis.autorange") or "xaxis.range" in moved
        return None if asked_for_all and window is not None else no_update


PAGE = Page(
    path="layers",
    title="Layers",
    purpose="Which layers, and since when? One number of every site on every examined step.",
    icon="layers",
    order=30,
    layout=layout,
    register=register,
)
