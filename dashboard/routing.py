"""From the address to the page, and back: the callbacks of the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, no_update

from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.data.library import ITSELF, Kind
from ampdoctor_dashboard.pages.base import Context, chosen
from ampdoctor_dashboard.shell import TICK_MS
from ampdoctor_dashboard.view import View
from ampdoctor_dashboard.widgets.badges import BAD, GOOD, PLAIN, WARN, badge
from ampdoctor_dashboard.widgets.frames import problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.pages.base import Desk, Page
    from ampdoctor_dashboard.words import Words

AT_REST_MS = 5000
"""How often a page asks for news of a run that is over: it may be recorded anew."""


def register(app: Dash, desk: Desk, pages: Sequence[Page]) -> None:
    """Add the callbacks that every page needs."""
    _in_the_browser(app)
    by_path = {page.path: page for page in pages}
    home = home_of(desk)

    @app.callback(
        Output("page", "children"),
        Output("shown", "data"),
        Input("location", "pathname"),
        Input("view", "data"),
        State("shown", "data"),
    )
    def show(pathname: str | None, values: dict[str, str] | None, shown: list[str] | None) -> Any:
        if values is None:
            return no_update, no_update
        path = (pathname or "/").strip("/") or home
        page = by_path.get(path)
        if page and page.needs_run and not values.get("run"):
            values = {**values, "run": _newest(desk) or ""}
        view = View.of(values)
        key = [path, view.run, view.rank, view.lang]
        if key == shown:
            return no_update, no_update
        return _page(page, desk, values), key

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("shown", "data"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def take_newest(shown: list[str] | None, values: dict[str, str] | None) -> Any:
        page = by_path.get(shown[0]) if shown else None
        newest = _newest(desk) if page and page.needs_run and not View.of(values).run else None
        return chosen(run=newest) if newest else no_update

    _looks(app, desk)
    _choices(app, desk)


def _looks(app: Dash, desk: Desk) -> None:
    """Add what looks for news of the run, again and again."""

    @app.callback(
        Output("version", "data"),
        Output("live", "children"),
        Output("tick", "interval"),
        Input("tick", "n_intervals"),
        Input("view", "data"),
        State("version", "data"),
    )
    def look(_: int | None, values: dict[str, str] | None, known: list[Any] | None) -> Any:
        try:
            context = desk.context(values)
        except AmpDoctorError:
            return no_update, [], AT_REST_MS
        opened = context.opened
        if opened is None:
            return no_update, [], AT_REST_MS
        try:
            version, judged = desk.look(opened)
        except AmpDoctorError:
            return no_update, [], AT_REST_MS
        at_rest = judged is not None and judged.current and not opened.is_live
        news = no_update if version == known else version
        return news, _badge(opened, context.words), AT_REST_MS if at_rest else TICK_MS


def home_of(desk: Desk) -> str:
    """Return the page that the bare address shows."""
    return "diagnosis" if desk.library.is_run else "runs"


def _page(page: Page | None, desk: Desk, values: dict[str, str]) -> Component:
    words = desk.words(View.of(values))
    try:
        if page is None:
            raise AmpDoctorError(words("there is no such page"), hint=words("choose one on the left"))
        if page.needs_run and not View.of(values).run and not desk.library.is_run:
            return _without_run(desk, words)
        context = desk.context(values) if page.needs_run else Context(View.of(values), words, None, desk)
        if page.needs_run:
            context.run.refresh()
        return page.layout(context)
    except AmpDoctorError as error:
        return problem(error, words)


def _newest(desk: Desk) -> str | None:
    """Return the run that is shown where none was chosen; None where there is none, or where the folder is a run."""
    return None if desk.library.is_run else desk.newest


def _without_run(desk: Desk, words: Words) -> Component:
    """Return what a page says where there is no run to show."""
    error = AmpDoctorError(words("This folder holds no run yet."), hint=words("Record one: ampdoctor run train.py"))
    return problem(error, words, color="gray")


def _badge(opened: OpenedRun, words: Words) -> Component:
    """Return the label that says what the run is up to."""
    stalled = opened.stalled_for_s
    if stalled is not None:
        return badge(words("no news for {minutes} min", minutes=int(stalled // 60)), WARN)
    if opened.is_live:
        return badge(words("live"), GOOD, lively=True)
    ends = {
        "complete": words("ended"),
        "crashed": words("crashed"),
        "degraded": words("recorder gave up"),
        "running": words("was killed"),
    }
    return badge(ends[opened.info.status], PLAIN if opened.info.status == "complete" else BAD)


def _choices(app: Dash, desk: Desk) -> None:
    """Add what fills the choice of runs and ranks."""

    @app.callback(
        Output("choose-run", "data"),
        Output("choose-run", "value"),
        Output("choose-rank", "data"),
        Output("choose-rank", "value"),
        Output("choose-rank", "style"),
        Output("choose-lang", "value"),
        Input("shown", "data"),
        State("view", "data"),
    )
    def offer(shown: list[str] | None, values: dict[str, str] | None) -> Any:
        view = View.of(values)
        of_page = shown[1] if shown else ""
        runs = [e.id for e in desk.library.entries() if e.kind is Kind.RUN]
        names = [{"value": i, "label": desk.library.root.name if i == ITSELF else i} for i in runs]
        now = view.run or of_page or (ITSELF if desk.library.is_run else None)
        try:
            opened = desk.context(values).opened
        except AmpDoctorError:
            opened = None
        ranks = [{"value": str(r), "label": f"rank {r}"} for r in opened.ranks] if opened else []
        rank = str(opened.rank) if opened else None
        style = {} if len(ranks) > 1 else {"display": "none"}
        return names, now if now in runs else None, ranks, rank, style, desk.words(view).lang


def _in_the_browser(app: Dash) -> None:
    """Add what needs no server; the functions are those of assets/shell.js."""
    own = "ampdoctor"
    app.clientside_callback(ClientsideFunction(own, "viewOfAddress"), Output("view", "data"), Input("location", "href"))
    app.clientside_callback(
        ClientsideFunction(own, "addressOfView"),
        Output({"nav": ALL}, "href"),
        Output({"nav": ALL}, "className"),
        Input("view", "data"),
        Input("location", "pathname"),
        State({"nav": ALL}, "id"),
        State("home", "data"),
    )
    app.clientside_callback(
        ClientsideFunction(own, "choose"),
        Output("go", "data"),
        Input("choose-run", "value"),
        Input("choose-rank", "value"),
        Input("choose-lang", "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(ClientsideFunction(own, "go"), Output("gone", "data"), Input("go", "data"))
    app.clientside_callback(
        ClientsideFunction(own, "toggleTheme"),
        Output("theme", "data"),
        Input("toggle-theme", "n_clicks"),
        State("theme", "data"),
    )
    app.clientside_callback(
        ClientsideFunction(own, "wearTheme"),
        Output("provider", "forceColorScheme"),
        Input("theme", "data"),
        State("lang", "data"),
    )
