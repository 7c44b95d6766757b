"""What a page is, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dash import Patch
from flask import has_request_context, request

from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.data.library import Kind
from ampdoctor_dashboard.figures.style import Style, nothing
from ampdoctor_dashboard.theme import theme_of
from ampdoctor_dashboard.view import View
from ampdoctor_dashboard.words import LANGUAGES, Words, preferred, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import plotly.graph_objects as go
    from dash import Dash
    from dash.development.base_component import Component

    from ampdoctor_dashboard.data.judge import Judge, Judged
    from ampdoctor_dashboard.data.library import Library
    from ampdoctor_dashboard.data.opened import OpenedRun


LANGUAGE_COOKIE = "ampdoctor-lang"
"""Cookie with the language that was chosen; assets/shell.js sets it."""


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        path: its address, without the slash.
        title: its name in English.
        purpose: what it answers, in English, in one sentence.
        icon: name of its picture in assets/icons.
        order: its place in the navigation.
        layout: makes it.
        register: adds its callbacks.
        needs_run: it shows one run; without, it is shown on the folder.
    """

    path: str
    title: str
    purpose: str
    icon: str
    order: int
    layout: Callable[[Context], Component]
    register: Callable[[Dash, Desk], None]
    needs_run: bool = True


@dataclass(frozen=True)
class Context:
    """What is shown, in which language, of which run.

    Attributes:
        view: what the address says.
        words: in which language.
        run: the run; None where the page needs none.
        desk: where runs and diagnoses come from.
    """

    view: View
    words: Words
    opened: OpenedRun | None
    desk: Desk

    @property
    def run(self) -> OpenedRun:
        """The run.

        Raises:
            AmpDoctorError: none was chosen.
        """
        if self.opened is None:
            raise AmpDoctorError(self.words("no run was chosen"), hint=self.words("choose one on the page Runs"))
        return self.opened


@dataclass(frozen=True)
class Desk:
    """Where pages get what they show.

    Attributes:
        library: the runs.
        judge: their diagnoses.
        lang: the language where an address names none; empty for the browser's.
    """

    library: Library
    judge: Judge
    lang: str = ""

    def words(self, view: View) -> Words:
        """Return the words for a view: that of the address, the command line, or the browser.

        A browser keeps what was chosen in it last; what it is set to counts until then.
        """
        return words_of(view.lang or self.lang or _language_of_browser())

    def context(self, values: Mapping[str, Any] | None) -> Context:
        """Return the context for the values of a view.

        Raises:
            AmpDoctorError: there is no such run, or it can't be read.
        """
        view = View.of(values)
        run_id = view.run or ("." if self.library.is_run else self.newest or "")
        opened = self.library.open(run_id, view.rank_number) if run_id else None
        return Context(view, self.words(view), opened, self)

    @property
    def newest(self) -> str | None:
        """The run that is shown where none was chosen; None where the folder holds none."""
        return next((entry.id for entry in self.library.entries() if entry.kind is Kind.RUN), None)

    def style(self, values: Mapping[str, Any] | None, theme: str | None) -> Style:
        """Return how to draw for a view."""
        return Style(theme_of(theme), self.words(View.of(values)))

    def drawn(
        self, values: Mapping[str, Any] | None, theme: str | None, draw: Callable[[Context, Style], go.Figure]
    ) -> go.Figure:
        """Return the figure that `draw` makes for a view; where the run can't be read, one that says why."""
        style = self.style(values, theme)
        try:
            return draw(self.context(values), style)
        except AmpDoctorError as error:
            return nothing(style, error.message, error.hint)

    def drawn_to_size(
        self, values: Mapping[str, Any] | None, theme: str | None, draw: Callable[[Context, Style], go.Figure]
    ) -> tuple[go.Figure, dict[str, str]]:
        """Return the same with the style that gives its place the figure's height."""
        figure = self.drawn(values, theme, draw)
        return figure, {"height": f"{figure.layout.height}px"}

    def look(self, opened: OpenedRun) -> tuple[list[Any], Judged | None]:
        """Look for news of a run: return what changes whenever there are any, and what is known of its diagnosis.

        Raises:
            AmpDoctorError: the run can't be read any more.
        """
        refreshed = opened.refresh()
        judged = self.judge.ask(opened)
        return [opened.id, opened.rank, refreshed, judged is not None and [judged.last_step, judged.current]], judged


def _language_of_browser() -> str:
    if not has_request_context():
        return ""
    kept = request.cookies.get(LANGUAGE_COOKIE, "")
    return kept if kept in LANGUAGES else preferred(request.accept_languages.values())


def chosen(**changes: object) -> Patch:
    """Return the change to the store `view` that sets these values, each text or a number; None takes one away."""
    patch = Patch()
    for name, value in changes.items():
        patch[name] = "" if value is None else str(value)
    return patch
