"""The page Runs: what lies in the folder."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ampdoctor_dashboard.data.library import Entry, Kind
from ampdoctor_dashboard.pages.base import Context, Desk, Page
from ampdoctor_dashboard.view import View
from ampdoctor_dashboard.widgets.frames import card, note, page_head
from ampdoctor_dashboard.widgets.tables import column, grid
from dash import Dash, Input, Output, State, html, no_update

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from ampdoctor_dashboard.words import Words
    from dash.development.base_component import Component

    from ampdoctor.trace.info import RunInfo

AT_ONCE = 12
"""Runs whose diagnoses are asked for at a time; the others follow with the next looks."""


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    entries = context.desk.library.entries()
    head = page_head(words(PAGE.title), words(PAGE.purpose))
    if not entries:
        return html.Div([head, card(words("Nothing here yet"), note(_nothing_yet(words)))])
    table = grid(
        "runs-table", _columns(words), _rows(context.desk, entries, words), height=560, getRowId="params.data.id"
    )
    return html.Div([head, card(words("Runs in {folder}", folder=context.desk.library.root.name), table)])


def _columns(words: Words) -> list[dict[str, Any]]:
    state = words("Whether it ended, goes on, was killed, or is no run at all.")
    verdict = words("The diagnosis in one sentence, or why there is none.")
    duration = words("From its start to its end, or until now.")
    return [
        column("name", words("run"), width=220, explain=words("Folder of the run. Click to open it.")),
        column("state", words("state"), width=110, explain=state),
        column("verdict", words("verdict"), flex=1, wrapText=True, autoHeight=True, explain=verdict),
        column("started", words("started"), width=170, explain=words("When the recording began, local time.")),
        column("duration", words("duration"), width=120, type="rightAligned", explain=duration),
        column("device", words("device"), width=190),
    ]


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""

    @app.callback(
        Output("runs-table", "rowData"),
        Input("tick", "n_intervals"),
        State("runs-table", "rowData"),
        State("view", "data"),
    )
    def judge(_: object, shown: list[dict[str, Any]], values: dict[str, str] | None) -> Any:
        rows = _rows(desk, desk.library.entries(), desk.words(View.of(values)))
        return no_update if rows == shown else rows

    @app.callback(
        Output("location", "href"), Input("runs-table", "cellClicked"), State("view", "data"), prevent_initial_call=True
    )
    def open_run(clicked: dict[str, Any] | None, values: dict[str, str] | None) -> Any:
        if not clicked or clicked.get("rowId") is None:
            return no_update
        return "/diagnosis" + View(run=clicked["rowId"], lang=View.of(values).lang).query


def _nothing_yet(words: Words) -> str:
    return words("No run has been recorded in this folder. Record one: ampdoctor run train.py")


def _rows(desk: Desk, entries: list[Entry], words: Words) -> list[dict[str, Any]]:
    waiting = 0
    rows = []
    for entry in entries:
        verdict = _verdict(desk, entry) if waiting < AT_ONCE else None
        waiting += verdict is None
        rows.append(_row(entry, verdict or words("being judged ..."), words))
    return rows


def _verdict(desk: Desk, entry: Entry) -> str | None:
    if entry.kind is not Kind.RUN:
        return entry.problem
    try:
        judged = desk.judge.ask(desk.library.open(entry.id))
    except AmpDoctorError as error:
        return error.message
    if judged is None:
        return None
    return judged.diagnosis.verdict if judged.diagnosis else judged.problem


def _row(entry: Entry, verdict: str, words: Words) -> dict[str, Any]:
    info = entry.info
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info.started)) if info and info.started else ""
    return {
        "id": entry.id,
        "name": entry.folder.name,
        "state": _state(entry, words),
        "verdict": verdict,
        "started": started,
        "duration": _duration(info) if info else "",
        "device": info.device if info else "",
    }


def _state(entry: Entry, words: Words) -> str:
    states = {
        "running": words("running"),
        "complete": words("complete"),
        "crashed": words("crashed"),
        "degraded": words("degraded"),
        "empty": words("empty"),
        "broken": words("broken"),
        "foreign": words("foreign"),
    }
    return states[entry.info.status if entry.info else entry.kind.value]


def _duration(info: RunInfo) -> str:
    """Return how long a run took, or has taken; nothing where its end is not known."""
    if not info.started or (info.ended is None and info.status != "running"):
        return ""
    seconds = (info.ended or time.time()) - info.started
    minutes, rest = divmod(int(max(seconds, 0.0)), 60)
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
