"""The Dash app put together."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dash import Dash
from flask import has_request_context, request

from ampdoctor_dashboard import routing
from ampdoctor_dashboard.data.judge import Judge
from ampdoctor_dashboard.data.library import Library
from ampdoctor_dashboard.pages import discover
from ampdoctor_dashboard.pages.base import Desk
from ampdoctor_dashboard.security import guard
from ampdoctor_dashboard.shell import frame
from ampdoctor_dashboard.view import View

if TYPE_CHECKING:
    from pathlib import Path

    from dash.development.base_component import Component

    from ampdoctor.config import Config

JUDGE = "ampdoctor-judge"
"""Under this name the server's `extensions` hold the judge, for whoever ends the server to close."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
    <head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
    <body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def make_app(
    root: Path, *, lang: str = "", token: str | None = None, host: str = "127.0.0.1", config: Config | None = None
) -> Dash:
    """Return the dashboard of the runs in the folder `root`.

    Args:
        root: a run, or a folder of runs.
        lang: its language; the browser's where empty.
        token: secret that every request must bring; None for none.
        host: the name under which it is served.
        config: settings of the diagnosis.

    Returns:
        The app; who is done with it closes `app.server.extensions[JUDGE]`.
    """
    judge = Judge(config)
    desk = Desk(Library(root), judge, lang)
    pages = discover()
    app = Dash(
        __name__, title="ampdoctor", update_title="", serve_locally=True, suppress_callback_exceptions=True,
        index_string=_PAGE, assets_folder="assets", compress=False,
    )  # fmt: skip

    def layout() -> Component:
        # The layout is asked for by a request of its own; the address of the page is that of whoever asks.
        asked = View.of_query(urlsplit(request.referrer or "").query) if has_request_context() else View()
        return frame(pages, desk.words(asked), routing.home_of(desk))

    app.layout = layout
    app.server.extensions[JUDGE] = judge
    routing.register(app, desk, pages)
    for page in pages:
        page.register(app, desk)
    guard(app.server, token, app.csp_hashes(), host)
    return app
