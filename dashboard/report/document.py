"""The report put together: what is said goes through a template that escapes it, figures through JSON."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ampdoctor import __version__
from ampdoctor.finding import Severity
from ampdoctor_dashboard.data.clock import local_time
from ampdoctor_dashboard.report.drawn import drawn
from ampdoctor_dashboard.report.embedded import json_text
from ampdoctor_dashboard.report.labels import labels
from ampdoctor_dashboard.report.said import explained, prose, said_steps, sites_of, skipped_by_reason, when
from ampdoctor_dashboard.theme import DARK, LIGHT

if TYPE_CHECKING:
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.words import Words

LONGEST = 300
"""Characters of a command, a device and the like."""


def document(opened: OpenedRun, diagnosis: Diagnosis, words: Words) -> str:
    """Return the report of a run as one HTML document."""
    plotly, draw = get_plotlyjs(), _part("report.js")
    template = _environment().get_template("report.html")
    return template.render(
        lang=words.lang,
        label=labels(words),
        prose=lambda text: prose(words, text),
        when=lambda location: when(location, words),
        sites_of=sites_of,
        explained=lambda rule: explained(rule, words),
        steps=said_steps(diagnosis, words),
        diagnosis=diagnosis,
        skipped=skipped_by_reason(diagnosis),
        tone=_tone(diagnosis),
        name=opened.id,
        facts=_facts(opened, words),
        figures=drawn(opened, diagnosis, words),
        colors=json_text(dict(zip(_colors(LIGHT), _colors(DARK), strict=True))),
        css=Markup(_part("report.css")),  # noqa: S704 - our own file
        plotly=Markup(plotly),  # noqa: S704 - plotly's own
        draw=Markup(draw),  # noqa: S704 - our own file
        scripts=f"{_hash(plotly)} {_hash(draw)}",
        version=__version__,
    )


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _colors(theme: Any) -> list[str]:
    return [theme.ground, theme.ink, theme.faint, theme.grid, theme.bad, theme.warn, theme.good]


def _tone(diagnosis: Diagnosis) -> str:
    if diagnosis.faults:
        return "bad" if any(f.severity is Severity.ERROR for f in diagnosis.faults) else "warn"
    return "good" if diagnosis.passed and not diagnosis.crashed else "plain"


def _facts(opened: OpenedRun, words: Words) -> list[tuple[str, str]]:
    info = opened.info
    started = local_time(info.started)
    facts = [
        (words("command"), " ".join(map(str, info.command))),
        (words("started"), started),
        (words("device"), info.device),
        (words("ended with"), info.exception or ""),
        (words("commit"), info.git_commit or ""),
        (words("versions"), ", ".join(f"{k} {v}" for k, v in info.versions.items() if v)),
    ]
    return [(title, value[:LONGEST]) for title, value in facts if value]


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    """Return the template engine: everything is escaped, and a name that is not there is an error."""
    return Environment(
        loader=FunctionLoader(_part), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
