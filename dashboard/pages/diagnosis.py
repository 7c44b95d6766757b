"""The page Diagnosis: what is wrong, why, and what to change. A run opens on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from ampdoctor.errors import AmpDoctorError
from ampdoctor.finding import Grade
from ampdoctor_dashboard.data.tried import tried
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.widgets.badges import badge
from ampdoctor_dashboard.widgets.examined import found_sound, not_examined
from ampdoctor_dashboard.widgets.finding import Setting, finding_item
from ampdoctor_dashboard.widgets.frames import card, page_head, problem
from ampdoctor_dashboard.widgets.prose import prose
from ampdoctor_dashboard.widgets.rule_page import EXPLAIN, rule_page
from ampdoctor_dashboard.widgets.tables import column, grid
from ampdoctor_dashboard.widgets.tried import tried_table
from ampdoctor_dashboard.widgets.verdict import verdict_card, waiting

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor_dashboard.data.judge import Judged
    from ampdoctor_dashboard.view import View
    from ampdoctor_dashboard.words import Words

WAIT_S = 0.3
"""How long the page waits for a diagnosis that is being made; it comes with a later look otherwise."""

NONE = "\N{EN DASH}"
"""Stands where nothing was recorded."""

MOST_MODULES = 2000
"""Modules that are listed."""


def layout(context: Context) -> Component:
    """Return the page, still without a diagnosis."""
    words = context.words
    return html.Div(
        [
            dcc.Store(id="diagnosis-shown"),
            page_head(words(PAGE.title), words(PAGE.purpose), html.Div(id="diagnosis-news", role="status")),
            html.Div(waiting(words), id="diagnosis-verdict"),
            html.Div(id="diagnosis-heading"),
            dmc.Accordion(
                [], id="diagnosis-findings", multiple=True, value=[], order=3, variant="separated", className="findings"
            ),
            html.Div(id="diagnosis-tried"),
            html.Div(_precision(words), id="diagnosis-precision", style={"display": "none"}),
            html.Div(id="diagnosis-rest"),
            dmc.Modal(id="diagnosis-rule", size="xl", opened=False, closeButtonProps={"aria-label": words("close")}),
        ]
    )


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""
    _fills(app, desk)

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("diagnosis-findings", "value"),
        State("diagnosis-shown", "data"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose(unfolded: list[str] | None, shown: dict[str, Any] | None, values: dict[str, str] | None) -> Any:
        now = unfolded[-1] if unfolded else ""
        if shown is None or unfolded == shown["unfolded"] or now == (values or {}).get("finding", ""):
            return no_update  # nobody did anything: the page was filled
        return chosen(finding=now)

    @app.callback(
        Output("diagnosis-rule", "opened"),
        Output("diagnosis-rule", "title"),
        Output("diagnosis-rule", "children"),
        Input({"kind": EXPLAIN, "rule": ALL, "at": ALL}, "n_clicks"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def explain(_: object, values: dict[str, str] | None) -> Any:
        asked = ctx.triggered_id
        if not asked or not ctx.triggered[0]["value"]:  # buttons that have just come to be
            return no_update, no_update, no_update
        words = desk.context({"lang": (values or {}).get("lang", "")}).words
        try:
            return True, html.Span(asked["rule"], className="finding-name"), rule_page(asked["rule"], words)
        except AmpDoctorError as error:
            return True, asked["rule"], problem(error, words)

    @app.callback(
        Output("diagnosis-modules-table", "rowData"),
        Output("diagnosis-modules-note", "children"),
        Input("diagnosis-modules", "value"),
        Input("diagnosis-shown", "data"),
        State("view", "data"),
    )
    def list_modules(unfolded: str | None, _: object, values: dict[str, str] | None) -> Any:
        if not unfolded:
            return no_update, no_update
        context = desk.context(values)
        judged = desk.judge.ask(context.run)
        if judged is None or judged.diagnosis is None:
            return no_update, no_update
        return _modules(judged.diagnosis, context.words)


def _fills(app: Dash, desk: Desk) -> None:
    """Add the callback that shows the diagnosis, and shows it anew where there is another."""

    @app.callback(
        Output("diagnosis-news", "children"),
        Output("diagnosis-verdict", "children"),
        Output("diagnosis-heading", "children"),
        Output("diagnosis-findings", "children"),
        Output("diagnosis-findings", "value"),
        Output("diagnosis-tried", "children"),
        Output("diagnosis-precision", "style"),
        Output("diagnosis-sentence", "children"),
        Output("diagnosis-rest", "children"),
        Output("diagnosis-shown", "data"),
        Input("version", "data"),
        Input("theme", "data"),
        State("view", "data"),
        State("diagnosis-shown", "data"),
    )
    def fill(_: object, theme: str | None, values: dict[str, str] | None, shown: dict[str, Any] | None) -> Any:
        try:
            context = desk.context(values)
            run = context.run
        except AmpDoctorError:
            return (no_update,) * 10
        judged = desk.judge.ask(run, WAIT_S)
        if judged is None:
            return (no_update,) * 10
        words = context.words
        if judged.diagnosis is None:
            why = AmpDoctorError(judged.problem or "", hint=words("the other pages show what could be read"))
            return [], problem(why, words), [], [], [], [], {"display": "none"}, [], [], None
        key = [run.id, run.rank, id(judged.diagnosis), judged.last_step, theme]
        if shown and shown["key"] == key:
            return _news(judged, words), *(no_update,) * 9
        at = Setting(run, context.view, desk.style(values, theme), tried(run))
        items = _keyed(judged.diagnosis)
        first = no_update if shown else _unfolded(items, context.view)
        return (
            _news(judged, words),
            verdict_card(judged.diagnosis, at.tried, words),
            _heading(judged.diagnosis, words),
            [finding_item(finding, key, at) for key, finding in items],
            first,
            _second_opinion(judged.diagnosis, at),
            {},
            prose(words, judged.diagnosis.precision.sentence),
            [found_sound(judged.diagnosis, words), not_examined(judged.diagnosis, words)],
            {"key": key, "unfolded": shown["unfolded"] if shown else first},
        )


def _keyed(diagnosis: Diagnosis) -> list[tuple[str, Finding]]:
    """Return the findings by what the address calls them; equal ones are told apart by their number."""
    seen: dict[str, Finding] = {}
    for number, finding in enumerate(diagnosis.findings):
        key = finding.fingerprint
        seen[f"{key}-{number}" if key in seen else key] = finding
    return list(seen.items())


def _unfolded(items: list[tuple[str, Finding]], view: View) -> list[str]:
    """Return what is unfolded at first: the finding of the address, or the cause of it; else the worst."""
    asked = [
        key for key, f in items if view.finding in {key, f.fingerprint, *(c.fingerprint for c in f.consequences)}
    ]  # fmt: skip
    return asked[:1] or [key for key, _ in items[:1]]


def _news(judged: Judged, words: Words) -> Any:
    if judged.last_step is None:
        return [] if judged.current else badge(words("a newer diagnosis is being made"), "blue", lively=True)
    if judged.current:
        return badge(words("as of step {step}", step=judged.last_step))
    said = words("as of step {step}, a newer one is being made", step=judged.last_step)
    return badge(said, "blue", lively=True)


def _heading(diagnosis: Diagnosis, words: Words) -> Any:
    if not diagnosis.findings:
        return []
    title = words("What is wrong, by its cause") if diagnosis.faults else words("Worth knowing")
    return dmc.Title(title, order=2, size="h5", className="part-title")


def _second_opinion(diagnosis: Diagnosis, at: Setting) -> Any:
    """Return what twin steps measured where no finding shows it: that a run is sound was tried, too."""
    shown = any(Grade.MEASURED in {f.grade, *(e.grade for e in f.evidence), *(x.grade for x in f.fixes)}
                for f in diagnosis.findings)  # fmt: skip
    if shown or not at.tried:
        return []
    words = at.words
    explain = words("A step of the run was executed in other settings as well: the gradients tell how far they differ.")
    return card(words("Second opinion"), tried_table(at.tried[-1], words), explain=explain)


def _precision(words: Words) -> Component:
    columns = [
        column("module", words("module"), flex=2, explain=words("Path of the module, in the order of the first call.")),
        column("type", words("class"), flex=1, explain=words("Class of the module.")),
        column("autocast", words("autocast"), flex=1, explain=words("dtype that autocast was on for around it.")),
        column("activations", words("activations"), flex=1, explain=words("dtypes of what it returned.")),
        column("parameters", words("parameters"), flex=1, explain=words("dtypes of its own parameters.")),
        column("gradients", words("gradients"), flex=1, explain=words("dtypes of its parameters' gradients.")),
    ]
    table = grid("diagnosis-modules-table", columns, [], height=360)
    rest = html.Div(id="diagnosis-modules-note", className="faint")
    fold = dmc.Accordion(
        dmc.AccordionItem(
            [dmc.AccordionControl(words("Module by module")), dmc.AccordionPanel([table, rest])], value="modules"
        ),
        id="diagnosis-modules", order=3, variant="filled", className="quiet-fold",
    )  # fmt: skip
    explain = words("From what was recorded, not from what was asked for: many a run believed to be FP16 is FP32.")
    sentence = html.P(id="diagnosis-sentence", className="precision-sentence")
    return card(words("The precision really used"), [sentence, fold], explain=explain)


def _modules(diagnosis: Diagnosis, words: Words) -> tuple[list[dict[str, str]], str]:
    modules = diagnosis.precision.modules
    rows = [
        {
            "module": m.module or words("(the model)"),
            "type": m.type,
            "autocast": m.autocast or words("off"),
            "activations": ", ".join(m.activations) or NONE,
            "parameters": ", ".join(m.parameters) or NONE,
            "gradients": ", ".join(m.gradients) or NONE,
        }
        for m in modules[:MOST_MODULES]
    ]
    hidden = len(modules) - len(rows)
    return rows, words("{count} more modules are not listed", count=hidden) if hidden else ""


PAGE = Page(
    path="diagnosis",
    title="Diagnosis",
    purpose="What is wrong, what shows it, and what to change.",
    icon="diagnosis",
    order=10,
    layout=layout,
    register=register,
)
