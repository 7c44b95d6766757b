"""The page What-if: the gradients of a step in another number format, at another loss scale."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
import numpy as np
from dash import ClientsideFunction, Dash, Input, Output, Patch, State, ctx, dcc, html, no_update

from ampdoctor.analysis.wording import scale_text
from ampdoctor.errors import AmpDoctorError
from ampdoctor.formats import FP16
from ampdoctor_dashboard.data import whatif as data
from ampdoctor_dashboard.data.step_run import nearest, steps_with
from ampdoctor_dashboard.figures.whatif import ScaleCurve, recommended_mark, scale_curve
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.widgets.frames import card, chart, note, page_head
from ampdoctor_dashboard.widgets.step_choice import instead, step_choice, step_options
from ampdoctor_dashboard.widgets.tables import grid
from ampdoctor_dashboard.widgets.whatif import columns, cures, rows, scale_of, spoken
from ampdoctor_dashboard.words.told import told

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.data.whatif import Answers, Asked
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.view import View
    from ampdoctor_dashboard.words import Words


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    figure = chart("whatif-figure", height=420, label=words("flushed share over the loss scale"))
    empty = {"localeText": {"noRowsToShow": words("no gradient is called like that, or none was recorded")}}
    table = grid("whatif-table", columns(words), [], height=440, options=empty)
    return html.Div(
        [
            page_head(words(PAGE.title), words(PAGE.purpose), *_controls(context)),
            html.Div(id="whatif-instead", role="status"),
            card(words("Loss scale"), [_slider(context), html.Div(id="whatif-answer", role="status"), figure],
                 explain=words("Every loss scale at once. The solid line is the scale of the slider."),
                 tools=_jumps(words)),
            html.Div(
                [
                    card(words("What would help"), html.Div(id="whatif-cures"),
                         explain=words("Cures for the whole run, best first; tried by a twin where it says measured.")),
                    card(words("What BF16 would cost"), html.Div(id="whatif-costs"),
                         explain=words("BF16 has FP32's range and 8 bits of significand: what to know before.")),
                ],
                className="two",
            ),
            card(words("Site by site"), [html.Div(id="whatif-table-note"), table],
                 explain=words("Shares of the elements that are nonzero in FP32, at the scale of the slider.")),
            dcc.Store(id="whatif-drawn"),
        ]
    )  # fmt: skip


def _controls(context: Context) -> list[Component]:
    words, view = context.words, context.view
    formats = [{"value": f.name, "label": f.title} for f in data.OFFERED]
    return [
        dmc.SegmentedControl(
            id="whatif-format", data=formats, value=_answered_format(context), size="xs",
            **{"aria-label": words("number format")},
        ),
        step_choice("whatif-step", words, chosen=_shown_step(context)),
        dmc.TextInput(
            id="whatif-only", value=view.only, placeholder=words("all sites; encoder.* for some"), debounce=500,
            size="xs", w=230, **{"aria-label": words("sites, as a pattern")},
        ),
    ]  # fmt: skip


def _slider(context: Context) -> Component:
    words = context.words
    marks = [{"value": e, "label": f"2^{e}"} for e in range(data.LOWEST, data.HIGHEST + 1, 4)]
    slider = dmc.Slider(
        id="whatif-scale", min=data.LOWEST, max=data.HIGHEST, step=1, value=_shown_exponent(context), marks=marks,
        label=None, updatemode="drag", thumbLabel=words("loss scale, as a power of two"), size="sm",
    )  # fmt: skip
    return html.Div([html.Div(id="whatif-readout", className="readout"), slider], className="scale-slider")


def _jumps(words: Words) -> list[Component]:
    return [
        dmc.Button(words("the run's own scale"), id="whatif-own", size="compact-xs", variant="default"),
        dmc.Button(words("recommended scale"), id="whatif-best", size="compact-xs", variant="default", disabled=True),
    ]


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""
    _drawing(app, desk)
    _answering(app, desk)
    _choosing(app, desk)
    app.clientside_callback(
        ClientsideFunction("whatif", "move"), Output("whatif-readout", "children"), Input("whatif-scale", "value")
    )


def _drawing(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("whatif-figure", "figure"),
        Output("whatif-drawn", "data"),
        Input("version", "data"),
        Input("view", "data"),
        Input("theme", "data"),
        State("whatif-drawn", "data"),
    )
    def draw(version: Any, values: dict[str, str] | None, theme: str | None, drawn: Any) -> Any:
        key = [version, {k: v for k, v in (values or {}).items() if k != "scale"}, theme]
        if key == drawn:  # only the slider has moved, and its mark has moved with it
            return no_update, no_update
        return desk.drawn(values, theme, lambda context, style: scale_curve(_curve(context), style)), key

    @app.callback(
        Output("whatif-figure", "figure", allow_duplicate=True),
        Output("whatif-cures", "children"),
        Output("whatif-best", "disabled"),
        Input("whatif-drawn", "data"),
        State("view", "data"),
        State("theme", "data"),
        prevent_initial_call=True,
    )
    def advise(_: object, values: dict[str, str] | None, theme: str | None) -> Any:
        context = desk.context(values)
        try:
            answers, found = _answers(context), data.advice(context.run)
        except AmpDoctorError as error:
            return no_update, note(told(context.words, error.message)), True
        # The scale is recommended for FP16: in another format it says nothing.
        best = scale_of(found) if answers.own.number_format is FP16 else None
        return _with_mark(best, desk.style(values, theme)), cures(found, context.words), best is None


def _answering(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("whatif-answer", "children"),
        Output("whatif-table", "rowData"),
        Output("whatif-table-note", "children"),
        Output("whatif-instead", "children"),
        Input("version", "data"),
        Input("view", "data"),
    )
    def answer(_: object, values: dict[str, str] | None) -> Any:
        context = desk.context(values)
        words = context.words
        try:
            answers = _answers(context)
        except AmpDoctorError:  # the figure says why
            return [], [], [], []
        exponent = data.exponent_of(context.view.scale)
        listed, left_out = rows(answers.at(exponent), words)
        remark = words("{count} more sites are not listed: narrow them down above.", count=left_out)
        other = instead(context.view.step_number, _asked(context.run, context.view).step, words)
        return spoken(answers.at(exponent), words), listed, note(remark) if left_out else [], other

    @app.callback(
        Output("whatif-step", "data"),
        Output("whatif-costs", "children"),
        Input("version", "data"),
        State("view", "data"),
    )
    def offer(_: object, values: dict[str, str] | None) -> Any:
        context = desk.context(values)
        run, words = context.run, context.words
        proven = set(run.table("twins")["step"].unique().to_pylist())
        costs = data.costs_of_bf16(run)
        nothing = words("Nothing in what was recorded speaks against BF16.")
        said = html.Ul([html.Li(told(words, cost)) for cost in costs]) if costs else note(nothing)
        return step_options(steps_with(run, "weight_grad"), words, proven), said


def _choosing(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("whatif-scale", "value"),
        Input("whatif-format", "value"),
        Input("whatif-step", "value"),
        Input("whatif-only", "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose(scale: int, fmt: str, step: str | None, only: str, values: dict[str, str] | None) -> Any:
        context = desk.context(values)
        view, triggered = context.view, str(ctx.triggered_id)
        # Controls also report what they were made with; only what differs from what is shown was chosen.
        if triggered == "whatif-scale":
            return no_update if scale == _shown_exponent(context) else chosen(scale=scale)
        if triggered == "whatif-format":
            return no_update if fmt == _answered_format(context) else chosen(format=fmt)
        if triggered == "whatif-step":
            return no_update if step == _shown_step(context) else chosen(step=step)
        return no_update if only == view.only else chosen(only=only)

    @app.callback(
        Output("whatif-scale", "value"),
        Input("whatif-own", "n_clicks"),
        Input("whatif-best", "n_clicks"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def jump(own: int | None, best: int | None, values: dict[str, str] | None) -> Any:
        context = desk.context(values)
        if ctx.triggered_id == "whatif-best" and best:
            scale = scale_of(data.advice(context.run))
            return no_update if scale is None else data.within(log2(scale))
        return data.within(_answers(context).own_exponent) if own else no_update


def _asked(run: OpenedRun, view: View) -> Asked:
    step = nearest(steps_with(run, "weight_grad"), view.step_number) if view.step_number is not None else None
    return data.Asked(step, view.format, view.only.strip() or "*")


def _answers(context: Context) -> Answers:
    run, words = context.run, context.words
    asked = _asked(run, context.view)
    if data.too_large(run):
        raise AmpDoctorError(words("too many gradients to answer here"), hint=words("Ask with ampdoctor whatif."))
    try:
        return data.answers(run, asked)
    except AmpDoctorError as error:
        if not steps_with(run, "weight_grad"):
            why, fill = words("no gradients were recorded in this run"), words("Record a few steps of its training.")
            raise AmpDoctorError(why, hint=fill) from None
        said = words("no weight gradient is called {sites}", sites=asked.sites)
        raise AmpDoctorError(said, hint=error.hint) from None


def _shown_exponent(context: Context) -> int:
    exponent = data.exponent_of(context.view.scale)
    if exponent is not None:
        return data.within(exponent)
    try:
        return data.within(_answers(context).own_exponent)
    except AmpDoctorError:
        return 0


def _shown_step(context: Context) -> str | None:
    step = _asked(context.run, context.view).step
    return None if step is None else str(step)


def _answered_format(context: Context) -> str:
    if context.view.format in {f.name for f in data.OFFERED}:
        return context.view.format
    try:
        return _answers(context).own.number_format.name
    except AmpDoctorError:
        return data.OFFERED[0].name


def _curve(context: Context) -> ScaleCurve:
    answers = _answers(context)
    exponent = data.exponent_of(context.view.scale)
    return ScaleCurve(
        answers.own.number_format.title,
        np.array(sorted(answers.by_scale), float),
        answers.shares("estimated"), answers.shares("low"), answers.shares("high"), answers.subnormal,
        answers.measured,
        answers.own_exponent if exponent is None else data.within(exponent),
        answers.own_exponent,
        scale_text(answers.own.own_scale),
        answers.overflows_from,
        keep=f"{context.run.id}-{context.run.rank}",
    )  # fmt: skip


def _with_mark(recommended: float | None, style: Style) -> Any:
    """Return the change to the figure that marks the recommended scale; it comes later than the figure itself."""
    if recommended is None:
        return no_update
    shape, text = recommended_mark(round(log2(recommended)), style)
    patch = Patch()
    patch["layout"]["shapes"].append(shape)
    patch["layout"]["annotations"].append(text)
    return patch


PAGE = Page(
    path="whatif",
    title="What-if",
    purpose="What would another loss scale or number format do to the gradients of this step?",
    icon="whatif",
    order=50,
    layout=layout,
    register=register,
)
