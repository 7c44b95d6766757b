"""The page Spectrum: how large the elements of one site are, and what number formats hold of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
import numpy as np
from dash import Dash, Input, Output, State, ctx, html, no_update

from ampdoctor.finding import Grade
from ampdoctor_dashboard.data import spectrum as data
from ampdoctor_dashboard.data.layers import roles_of
from ampdoctor_dashboard.data.measured import twinned_steps
from ampdoctor_dashboard.data.step_run import nearest
from ampdoctor_dashboard.figures.spectrogram import Spectrogram, spectrogram
from ampdoctor_dashboard.figures.style import nothing
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.view import View
from ampdoctor_dashboard.widgets.badges import grade_badge
from ampdoctor_dashboard.widgets.format_edges import format_edges
from ampdoctor_dashboard.widgets.frames import card, chart, page_head
from ampdoctor_dashboard.widgets.labels import labelled
from ampdoctor_dashboard.widgets.metrics import role_words
from ampdoctor_dashboard.widgets.step_bars import exponent_title, step_bars
from ampdoctor_dashboard.widgets.step_choice import instead

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from dash.development.base_component import Component

    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words

HELD, UNSCALED = "held", "unscaled"

ALL = "*"
"""The choice of all roles."""

MOST_SITES = 1000
"""Sites that the list offers at a time; the search finds the others."""

LONGEST = 120


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    over = words(
        "One column a step, one row a power of two. Between a format's lines its numbers are held; in the shaded range "
        "they are subnormal and lose bits, below it they become zero, above the upper line they overflow."
    )
    at = words(
        "The elements by their power of two, above what each format holds: solid in full, hatched with bits lost. "
        "Outlined: the FP32 twin of the same step, so what the outline shows and the bars lack was lost."
    )
    return html.Div(
        [
            page_head(words(PAGE.title), words(PAGE.purpose), *_controls(context)),
            html.Div(id="spectrum-instead", role="status"),
            card(
                words("Over the steps"),
                chart("spectrum-over", height=520, label=words("exponents of the site over the examined steps")),
                explain=over, tools=[html.Div(id="spectrum-site-name"), grade_badge(Grade.OBSERVED, words)],
            ),
            card(
                words("On one step"),
                chart("spectrum-at", height=480, label=words("exponents of the site on the chosen step")),
                explain=at,
                tools=[_stepper(words), grade_badge(Grade.OBSERVED, words), grade_badge(Grade.MEASURED, words)],
            ),
        ]
    )  # fmt: skip


def _controls(context: Context) -> list[Component]:
    words = context.words
    return [
        dmc.Select(id="spectrum-role", data=[], size="xs", w=180, allowDeselect=False, **labelled(words("role"))),
        dmc.Select(
            id="spectrum-site", data=[], searchable=True, size="xs", w=340, limit=100, allowDeselect=False,
            nothingFoundMessage=words("no such site"), **labelled(words("site")),
        ),
        dmc.SegmentedControl(
            id="spectrum-scale", size="xs", value=_scaling(context),
            data=[
                {"value": UNSCALED, "label": words("loss scale divided out")},
                {"value": HELD, "label": words("as held")},
            ],
        ),
    ]  # fmt: skip


def _stepper(words: Words) -> Component:
    return html.Div(
        [
            dmc.ActionIcon("<", id="spectrum-back", variant="default", size="sm", **labelled(words("step before"))),
            html.Span(id="spectrum-step", role="status", className="spectrum-step"),
            dmc.ActionIcon(">", id="spectrum-on", variant="default", size="sm", **labelled(words("step after"))),
        ],
        className="tools",
    )


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""
    _drawing(app, desk)
    _choosing(app, desk)
    _offering(app, desk)


def _offering(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("spectrum-role", "data"),
        Output("spectrum-role", "value"),
        Input("version", "data"),
        Input("view", "data"),
        State("spectrum-role", "data"),
    )
    def roles(_: object, values: dict[str, str] | None, offered: list[Any]) -> Any:
        context = desk.context(values)
        names = role_words(context.words)
        recorded = roles_of(context.run.tensors)
        every = [{"value": ALL, "label": context.words("all roles")}]
        found = every + [{"value": role, "label": names.get(role, role)} for role in recorded]
        return no_update if found == offered else found, context.view.role if context.view.role in recorded else ALL

    @app.callback(
        Output("spectrum-site", "data"),
        Output("spectrum-site", "value"),
        Output("spectrum-site-name", "children"),
        Input("version", "data"),
        Input("view", "data"),
        Input("spectrum-site", "searchValue"),
        State("spectrum-site", "value"),
    )
    def offer(_: object, values: dict[str, str] | None, sought: str | None, value: str | None) -> Any:
        context = desk.context(values)
        number, sites = _site(context), context.run.tensors.sites
        own = sites[number] if number is not None else None
        asked = "" if own is None or sought in {None, _label(own)} else str(sought).lower()
        found = [s for s in sites if context.view.role in {"", s.role} and asked in _label(s).lower()][:MOST_SITES]
        found += [own] if own is not None and own not in found else []
        now = own.key if own is not None else None
        name = own.name[:LONGEST] if own is not None else ""
        offered = [{"value": s.key, "label": _label(s)} for s in found]
        return offered, no_update if now == value else now, name


def _label(site: Any) -> str:
    return f"{site.name[:LONGEST]} ({site.role})"


def _drawing(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("spectrum-over", "figure"), Input("version", "data"), Input("view", "data"), Input("theme", "data")
    )
    def over(_: object, values: dict[str, str] | None, theme: str | None) -> Any:
        return desk.drawn(values, theme, _over)

    @app.callback(
        Output("spectrum-at", "figure"),
        Output("spectrum-at", "style"),
        Output("spectrum-step", "children"),
        Output("spectrum-instead", "children"),
        Input("version", "data"),
        Input("view", "data"),
        Input("theme", "data"),
    )
    def at(_: object, values: dict[str, str] | None, theme: str | None) -> Any:
        steps: list[int] = []

        def draw(context: Context, style: Style) -> go.Figure:
            number = _site(context)
            if number is None:
                return _nothing(style)
            step = _step(context, number)
            steps.append(step)
            return step_bars(context.run, number, step, style, unscaled=_scaling(context) == UNSCALED)

        figure = desk.drawn(values, theme, draw)
        view, words = View.of(values), desk.style(values, theme).words
        said = words("step {step}", step=steps[0]) if steps else ""
        other = instead(view.step_number, steps[0] if steps else None, words)
        return figure, {"height": f"{figure.layout.height}px"}, said, other


def _over(context: Context, style: Style) -> go.Figure:
    number = _site(context)
    if number is None:
        return _nothing(style)
    words, site, unscaled = context.words, context.run.tensors.sites[number], _scaling(context) == UNSCALED
    found = data.spectrum_of(context.run, number, unscaled=unscaled)
    numel = np.maximum(found.numel, 1.0)
    return spectrogram(
        Spectrogram(
            found.steps, found.lowest, found.counts, found.zeros / numel, found.nonfinite / numel,
            format_edges(context.run, found, number, words), exponent_title(site.role, words, unscaled=unscaled),
            words("no tensor of this site was recorded"), _step(context, number),
            keep=f"{context.run.id}-{context.run.rank}-{site.key}-{unscaled}",
        ),
        style,
    )  # fmt: skip


def _nothing(style: Style) -> go.Figure:
    why = style.words("no tensor was recorded")
    fill = style.words("tensors are recorded on examined steps: the first ones, then every N-th")
    return nothing(style, why, fill, height=360)


def _site(context: Context) -> int | None:
    number = context.run.tensors.find(context.view.site) if context.view.site else None
    return data.first_choice(context.run) if number is None else number


def _step(context: Context, number: int) -> int:
    """Return the chosen step; where none was, the last that was twinned at this site, else the last."""
    run, site = context.run, context.run.tensors.sites[number]
    if context.view.step_number is not None:
        recorded: list[int] = np.unique(run.tensors.step[run.tensors.rows_of(number)]).tolist()
        return nearest(recorded, context.view.step_number) or recorded[0]
    twinned = twinned_steps(run, site.role, site.module, site.slot)
    return int(twinned[-1] if twinned else run.tensors.step[run.tensors.rows_of(number)[-1]])


def _scaling(context: Context) -> str:
    return HELD if context.view.scaling == HELD else UNSCALED


def _choosing(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("spectrum-site", "value"),
        Input("spectrum-role", "value"),
        Input("spectrum-scale", "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose(site: str | None, role: str | None, scaling: str | None, values: dict[str, str] | None) -> Any:
        view = desk.context(values).view
        if ctx.triggered_id == "spectrum-site":
            own = _site(desk.context(values))
            known = desk.context(values).run.tensors.sites[own].key if own is not None else None
            return chosen(site=site) if site and site != known else no_update
        if ctx.triggered_id == "spectrum-role":
            asked = "" if role in {None, ALL} else role
            return chosen(role=asked) if asked != view.role else no_update
        return chosen(scaling=scaling) if scaling and scaling != (view.scaling or UNSCALED) else no_update

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("spectrum-over", "clickData"),
        Input("spectrum-back", "n_clicks"),
        Input("spectrum-on", "n_clicks"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def move(clicked: dict[str, Any] | None, _: Any, __: Any, values: dict[str, str] | None) -> Any:
        context = desk.context(values)
        number = _site(context)
        if number is None:
            return no_update
        index = context.run.tensors
        steps = np.unique(index.step[index.rows_of(number)])
        if ctx.triggered_id == "spectrum-over":
            place = int(clicked["points"][0]["x"]) if clicked else -1
            return chosen(step=steps[place]) if 0 <= place < len(steps) else no_update
        now = int(np.searchsorted(steps, _step(context, number)))
        place = now + (1 if ctx.triggered_id == "spectrum-on" else -1)
        return chosen(step=steps[place]) if 0 <= place < len(steps) else no_update


PAGE = Page(
    path="spectrum",
    title="Spectrum",
    purpose="How large are the elements of a tensor, and which number format holds them?",
    icon="spectrum",
    order=40,
    layout=layout,
    register=register,
)
