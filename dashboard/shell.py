"""What stands around every page: name, choice of the run, navigation, language and theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from ampdoctor_dashboard.words import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from ampdoctor_dashboard.pages.base import Page
    from ampdoctor_dashboard.words import Words

TICK_MS = 1000
"""How often a page asks for news of a run that goes on."""


def frame(pages: Sequence[Page], words: Words, home: str) -> Component:
    """Return the whole of what is on the screen, with the place of the page empty; `home` is the first one."""
    return dmc.MantineProvider(
        id="provider",
        theme={"primaryColor": "indigo", "defaultRadius": "sm", "fontFamily": "inherit"},
        children=[
            dcc.Location(id="location", refresh=False),
            dcc.Store(id="view"),
            dcc.Store(id="shown"),
            dcc.Store(id="version"),
            dcc.Store(id="go"),
            dcc.Store(id="gone"),
            dcc.Store(id="theme", storage_type="local"),
            dcc.Store(id="lang", data=words.lang),
            dcc.Store(id="home", data=home),
            dcc.Interval(id="tick", interval=TICK_MS),
            html.A(words("Skip to the page"), href="#page", className="skip"),
            dmc.AppShell(
                [_header(words), _navigation(pages, words), dmc.AppShellMain(html.Div(id="page", tabIndex=-1))],
                header={"height": 56},
                navbar={"width": 224, "breakpoint": "sm", "collapsed": {"mobile": True}},
                padding="md",
            ),
        ],
    )


def _header(words: Words) -> Component:
    languages = [{"value": code, "label": name} for code, name in LANGUAGES.items()]
    return dmc.AppShellHeader(
        html.Div(
            [
                html.Div([html.Span(className="mark"), html.Span("ampdoctor", className="name")], className="brand"),
                dmc.Select(
                    id="choose-run", searchable=True, placeholder=words("choose a run"), w=320, size="xs",
                    allowDeselect=False,
                    nothingFoundMessage=words("no such run"), **_named(words("run")),
                ),
                dmc.Select(
                    id="choose-rank", w=110, size="xs", allowDeselect=False, style={"display": "none"},
                    **_named(words("rank")),
                ),
                html.Div(id="live", role="status"),
                html.Div(className="spring"),
                dmc.Select(
                    id="choose-lang", data=languages, w=110, size="xs", allowDeselect=False,
                    **_named(words("language")),
                ),
                dmc.ActionIcon(
                    html.Span(className="icon icon-theme"), id="toggle-theme", variant="default", size="md",
                    **_named(words("light or dark")),
                ),
            ],
            className="header",
        )
    )  # fmt: skip


def _navigation(pages: Sequence[Page], words: Words) -> Component:
    links = [
        dcc.Link(
            [html.Span(className=f"icon icon-{page.icon}"), html.Span(words(page.title))],
            id={"nav": page.path},
            href=f"/{page.path}",
            title=words(page.purpose),
            className="nav",
        )
        for page in pages
    ]
    return dmc.AppShellNavbar(html.Nav(links, **_named(words("pages"))))


def _named(label: str) -> dict[str, Any]:
    return {"aria-label": label}
