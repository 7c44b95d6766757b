"""The page Compare: runs side by side, what got worse first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update

from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.data import comparison
from ampdoctor_dashboard.data.differences import changed_findings, differing, settings_of
from ampdoctor_dashboard.data.library import Kind
from ampdoctor_dashboard.data.vitals import vitals_of
from ampdoctor_dashboard.figures.compare import compare
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.view import View
from ampdoctor_dashboard.widgets.badges import badge
from ampdoctor_dashboard.widgets.comparison import finding_list, metric_table, setting_table
from ampdoctor_dashboard.widgets.frames import card, chart, note, page_head
from ampdoctor_dashboard.widgets.prose import cut

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words

MOST = 3
"""Runs that one is compared with: more lines could not be told apart."""

_STEP = "step"


@dataclass(frozen=True)
class Beside:
    """What is compared.

    Attributes:
        runs: the run, then the others.
        unreadable: those that can't be read, with the reason.
        twice: the run was asked to be compared with itself.
    """

    runs: tuple[OpenedRun, ...]
    unreadable: tuple[tuple[str, str], ...] = ()
    twice: bool = False

    @property
    def names(self) -> list[str]:
        """What the runs are called."""
        return [opened.folder.name if opened.id == "." else opened.id for opened in self.runs]


def layout(context: Context) -> Component:
    """Return the page."""
    words, run = context.words, context.run
    axis = dmc.SegmentedControl(
        id="compare-axis",
        data=[{"value": _STEP, "label": words("over steps")}, {"value": "time", "label": words("over time")}],
        value=context.view.axis or _STEP,
        size="xs",
    )
    others = [e.id for e in context.desk.library.entries() if e.kind is Kind.RUN and e.id != run.id]
    label = words("loss, loss scale, gradients and step time of the runs on the same axes")
    explain = words("Changes are against the first run; what got worse comes first.")
    return html.Div(
        [
            dcc.Store(id="compare-version"),
            page_head(words(PAGE.title), words(PAGE.purpose), axis),
            card(words("Compare this run with"), _choice(others, context), explain=words("Up to three other runs.")),
            card(words("Over the run"), chart("compare-figure", height=900, label=label)),
            card(words("What got worse, what got better"), html.Div(id="compare-metrics"), explain=explain),
            card(words("Findings"), html.Div(id="compare-findings")),
            card(words("Settings that differ"), html.Div(id="compare-settings")),
        ]
    )


def _choice(others: list[str], context: Context) -> list[Component]:
    words = context.words
    if not others:
        none = words("This folder holds no other run: record another one, or open a folder with several.")
        return [note(none), html.Div(id="compare-notes")]
    select = dmc.MultiSelect(
        id="compare-beside", data=others, value=_offered(context.view, others),
        searchable=True, maxValues=MOST, placeholder=words("choose a run"), hidePickedOptions=True,
        nothingFoundMessage=words("no such run"), **{"aria-label": words("runs to compare with")},
    )  # fmt: skip
    return [select, html.Div(id="compare-notes")]


def _offered(view: View, others: list[str]) -> list[str]:
    """Return those runs of the address that can be chosen; it may name others, which are told of."""
    return [run_id for run_id in dict.fromkeys(view.beside_runs) if run_id in others][:MOST]


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""
    _choices(app)
    _shows(app, desk)

    @app.callback(
        Output("compare-version", "data"),
        Input("tick", "n_intervals"),
        Input("view", "data"),
        State("compare-version", "data"),
    )
    def look(_: object, values: dict[str, str] | None, known: list[Any] | None) -> Any:
        try:
            context = desk.context(values)
            beside = _beside(context)
        except AmpDoctorError:
            return no_update
        version: list[Any] = [[*context.view.beside_runs], *(desk.look(opened)[0] for opened in beside.runs)]
        return no_update if version == known else version


def _shows(app: Dash, desk: Desk) -> None:
    """Add what shows the runs that were chosen, and shows them anew where one has grown or was judged."""

    @app.callback(
        Output("compare-figure", "figure"),
        Output("compare-figure", "style"),
        Input("compare-version", "data"),
        Input("view", "data"),
        Input("theme", "data"),
    )
    def draw(_: object, values: dict[str, str] | None, theme: str | None) -> Any:
        return desk.drawn_to_size(values, theme, _figure)

    @app.callback(
        Output("compare-metrics", "children"),
        Output("compare-findings", "children"),
        Output("compare-settings", "children"),
        Input("compare-version", "data"),
        State("view", "data"),
    )
    def tabulate(_: object, values: dict[str, str] | None) -> Any:
        try:
            context = desk.context(values)
            beside = _beside(context)
        except AmpDoctorError as error:
            return note(error.message), [], []
        if len(beside.runs) < 2:
            empty = note(context.words("No other run was chosen: choose one above."))
            return empty, empty, empty
        return _metrics(beside, context.words), _findings(beside, context), _settings(beside, context)

    @app.callback(
        Output("compare-notes", "children"), Input("compare-version", "data"), State("view", "data")
    )  # fmt: skip
    def say(_: object, values: dict[str, str] | None) -> Any:
        try:
            context = desk.context(values)
            return [note(text) for text in _notes(_beside(context), context.words)]
        except AmpDoctorError as error:
            return note(error.message)


def _choices(app: Dash) -> None:
    """Add what writes to the address what was chosen."""

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("compare-beside", "value"),
        State("compare-beside", "data"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose(asked: list[str] | None, offered: list[str], values: dict[str, str] | None) -> Any:
        known = _offered(View.of(values), offered)
        return no_update if (asked or []) == known else chosen(beside="~".join(asked or []))

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("compare-axis", "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose_axis(axis: str, values: dict[str, str] | None) -> Any:
        return no_update if (values or {}).get("axis", _STEP) == axis else chosen(axis=axis)


def _beside(context: Context) -> Beside:
    """Open the runs that are compared."""
    own = context.run
    asked = list(dict.fromkeys(context.view.beside_runs))
    opened, unreadable = [own], []
    for run_id in [r for r in asked if r != own.id][:MOST]:
        try:
            opened.append(context.desk.library.open(run_id))
        except AmpDoctorError as error:
            unreadable.append((run_id, error.message))
    return Beside(tuple(opened), tuple(unreadable), own.id in asked)


def _figure(context: Context, style: Style) -> Any:
    beside = _beside(context)
    over_time = context.view.axis == "time"
    vitals = [vitals_of(opened, over_time=over_time) for opened in beside.runs]
    return compare(list(zip(beside.names, vitals, strict=True)), style, over_time=over_time)


def _metrics(beside: Beside, words: Words) -> Component:
    base, *others = beside.runs
    return metric_table(comparison.rows(base, others), beside.names, words)


def _diagnosis(context: Context, opened: OpenedRun) -> Diagnosis | None:
    judged = context.desk.judge.ask(opened)
    return judged.diagnosis if judged else None


def _findings(beside: Beside, context: Context) -> list[Component]:
    words = context.words
    base, *others = (_diagnosis(context, opened) for opened in beside.runs)
    if base is None:
        return [_not_judged(beside.names[0], beside.runs[0], context)]
    shown: list[Component] = []
    for name, opened, own in zip(beside.names[1:], beside.runs[1:], others, strict=True):
        title = words("{run} beside {other}", run=cut(name, 40), other=cut(beside.names[0], 40))
        shown.append(html.H3(title, className="finding-part"))
        if own is None:
            shown.append(_not_judged(name, opened, context))
            continue
        views = [View(run=run.id, lang=context.view.lang) for run in (beside.runs[0], opened)]
        shown.append(finding_list(changed_findings(base, own), views[0], views[1], words))
    return shown


def _not_judged(name: str, opened: OpenedRun, context: Context) -> Component:
    words = context.words
    judged = context.desk.judge.ask(opened)
    if judged is None:
        return badge(words("{run} is being judged ...", run=cut(name, 40)), "blue", lively=True)
    return note(words("{run} can't be judged: {reason}", run=cut(name, 40), reason=judged.problem or ""))


def _settings(beside: Beside, context: Context) -> list[Component]:
    settings = []
    for opened in beside.runs:
        diagnosis = _diagnosis(context, opened)
        settings.append(settings_of(opened.info, diagnosis.precision.sentence if diagnosis else None))
    return setting_table(*differing(settings), beside.names, context.words)


def _notes(beside: Beside, words: Words) -> list[str]:
    """Return what can't be compared, and why."""
    said = [words("A run is not compared with itself.")] if beside.twice else []
    said += [words("{run} can't be read: {reason}", run=cut(r, 40), reason=why) for r, why in beside.unreadable]
    lengths = {len(opened.steps) for opened in beside.runs}
    if len(lengths) > 1:
        counts = ", ".join(f"{cut(n, 40)}: {len(o.steps)}" for n, o in zip(beside.names, beside.runs, strict=True))
        said.append(words("The runs have different numbers of steps ({counts}).", counts=counts))
    for name, opened in zip(beside.names, beside.runs, strict=True):
        if not len(opened.tensors):
            said.append(words("{run} has no examined step: nothing is known of its tensors.", run=cut(name, 40)))
        if not opened.table("twins").num_rows:
            said.append(words("{run} has no twin step: nothing was measured of its gradient.", run=cut(name, 40)))
        said += [f"{cut(name, 40)}: {problem}" for problem in opened.problems.values()]
    return said


PAGE = Page(
    path="compare",
    title="Compare",
    purpose="What got worse, and what got better: two or more runs on the same axes.",
    icon="compare",
    order=90,
    layout=layout,
    register=register,
)
