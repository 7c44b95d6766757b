"""The page Runs: what lies in the folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import Dash, Input, Output, State, dcc, html, no_update

from ampdoctor.finding import Severity
from ampdoctor_dashboard.data.clock import local_time
from ampdoctor_dashboard.data.library import Kind
from ampdoctor_dashboard.data.runs import Glance, glances
from ampdoctor_dashboard.pages.base import Context, Desk, Page
from ampdoctor_dashboard.view import View
from ampdoctor_dashboard.widgets.frames import card, note, page_head
from ampdoctor_dashboard.widgets.links import address
from ampdoctor_dashboard.widgets.tables import column, grid
from ampdoctor_dashboard.words.told import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from ampdoctor_dashboard.words import Words

OFTEN_MS, SELDOM_MS = 1000, 5000
"""How often the list is looked through: while something is judged or goes on, and else."""

LONGEST = 600
"""Characters of a verdict that are shown."""

_OPTIONS = {"rowClassRules": {"runs-none": "params.data.kind !== 'run'"}}


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    seen = glances(context.desk.library, context.desk.judge)
    head = page_head(words(PAGE.title), words(PAGE.purpose))
    if not seen:
        return html.Div([head, card(words("Nothing here yet"), note(_nothing_yet(words)))])
    table = grid(
        "runs-table", _columns(words), _rows(seen, context.view, words), height=620, getRowId="params.data.id",
        options=_OPTIONS,
    )  # fmt: skip
    explain = words("Click a run, or press Enter on its row, to open it.")
    title = words("Runs in {folder}", folder=context.desk.library.root.name)
    return html.Div([dcc.Interval(id="runs-tick", interval=OFTEN_MS), head, card(title, table, explain=explain)])


def _columns(words: Words) -> list[dict[str, Any]]:
    state = words("Whether it ended, goes on, was killed, or is no run at all.")
    found = words("How bad the worst cause is that the diagnosis found, and how many there are.")
    verdict = words("The diagnosis in one sentence, or why there is none.")
    duration = words("From its start to its end, or until now.")
    steps = words("Optimizer steps that the diagnosis has seen.")
    right = {"type": "rightAligned", "filter": False, "cellClass": ["ag-right-aligned-cell", "runs-cell"]}
    label = {"cellRenderer": "RunsBadge", "cellClass": "runs-cell", "filter": False}
    text = {"cellClass": "runs-cell", "wrapText": True, "autoHeight": True, "filter": False}
    name = words("Folder of the run. Click to open it.")
    return [
        column("name", words("run"), width=180, cellRenderer="RunsName", tooltipField="id", explain=name, **text),
        column("state", words("state"), width=108, explain=state, **label),
        column("found", words("found"), width=108, explain=found, **label),
        column("verdict", words("verdict"), flex=1, minWidth=300, explain=verdict, **text | {"filter": True}),
        column("steps", words("steps"), width=76, explain=steps, **right),
        column("ranks", words("ranks"), width=76, explain=words("Processes that recorded."), **right),
        column("duration", words("duration"), width=104, explain=duration, **right),
        column("started", words("started"), width=104, explain=words("When the recording began, local time."), **text),
        column("device", words("device"), width=110, explain=words("Device of the parameters."), **text),
    ]


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""

    @app.callback(
        Output("runs-table", "rowData"),
        Output("runs-tick", "interval"),
        Input("runs-tick", "n_intervals"),
        State("runs-table", "rowData"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def look(_: object, shown: list[dict[str, Any]], values: dict[str, str] | None) -> Any:
        seen, view = glances(desk.library, desk.judge), View.of(values)
        rows = _rows(seen, view, desk.words(view))
        interval = OFTEN_MS if any(g.waiting or g.live for g in seen) else SELDOM_MS
        return no_update if rows == shown else rows, interval

    @app.callback(
        Output("go", "data", allow_duplicate=True),
        Input("runs-table", "cellClicked"),
        State("view", "data"),
        State("runs-table", "rowData"),
        prevent_initial_call=True,
    )
    def open_run(
        clicked: dict[str, Any] | None, values: dict[str, str] | None, rows: list[dict[str, Any]] | None
    ) -> Any:
        asked = (clicked or {}).get("rowId")
        if not any(row["id"] == asked and row["kind"] == Kind.RUN.value for row in rows or ()):
            return no_update
        return address("diagnosis", View(run=str(asked), lang=View.of(values).lang))


def _nothing_yet(words: Words) -> str:
    return words("No run has been recorded in this folder. Record one: ampdoctor run train.py")


def _rows(seen: Sequence[Glance], view: View, words: Words) -> list[dict[str, Any]]:
    return [_row(glance, view, words) for glance in seen]


def _row(glance: Glance, view: View, words: Words) -> dict[str, Any]:
    entry, info = glance.entry, glance.entry.info
    started = local_time(info.started) if info else ""
    state, state_tone = _state(glance, words)
    found, found_tone = _found(glance, words)
    diagnosis = glance.judged.diagnosis if glance.judged else None
    return {
        "id": entry.id,
        "kind": entry.kind.value,
        "name": entry.folder.name,
        "href": address("diagnosis", View(run=entry.id, lang=view.lang)) if entry.kind is Kind.RUN else "",
        "state": state,
        "state_tone": state_tone,
        "found": found,
        "found_tone": found_tone,
        "verdict": _verdict(glance, words),
        "steps": diagnosis.examined.steps if diagnosis else None,
        "ranks": glance.ranks or None,
        "duration": _duration(glance.duration_s),
        "started": started,
        "device": info.device if info else "",
    }


def _verdict(glance: Glance, words: Words) -> str:
    if glance.problem:
        return told(words, glance.problem)[:LONGEST]
    if glance.judged is None or glance.judged.diagnosis is None:
        return words("being judged ...")
    return told(words, glance.judged.diagnosis.verdict).replace("`", "")[:LONGEST]


def _found(glance: Glance, words: Words) -> tuple[str, str]:
    """Return the worst that was found in a word or two, and its tone."""
    if glance.judged is None or glance.judged.diagnosis is None:
        return "", "plain"
    errors, warnings = glance.count(Severity.ERROR), glance.count(Severity.WARNING)
    if errors:
        return (words("{count} errors", count=errors) if errors > 1 else words("1 error")), "bad"
    if warnings:
        return (words("{count} warnings", count=warnings) if warnings > 1 else words("1 warning")), "warn"
    if glance.live:
        return words("nothing so far"), "plain"
    return (words("healthy"), "good") if glance.judged.diagnosis.passed else (words("not judged"), "plain")


def _state(glance: Glance, words: Words) -> tuple[str, str]:
    """Return what a folder is, or what its run is up to, and the tone of that."""
    if glance.stalled_min is not None:
        return words("no news for {minutes} min", minutes=glance.stalled_min), "warn"
    if glance.live:
        return words("live"), "live"
    info = glance.entry.info
    return {
        "complete": (words("ended"), "plain"),
        "running": (words("was killed"), "bad"),
        "crashed": (words("crashed"), "bad"),
        "degraded": (words("recorder gave up"), "warn"),
        "empty": (words("empty"), "none"),
        "broken": (words("broken"), "none"),
        "foreign": (words("no run"), "none"),
    }[info.status if info else glance.entry.kind.value]


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{seconds:.1f} s"


PAGE = Page(
    path="runs",
    title="Runs",
    purpose="Every run in this folder, with its verdict.",
    icon="runs",
    order=100,
    layout=layout,
    register=register,
    needs_run=False,
)
