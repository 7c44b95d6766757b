"""Runs side by side, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dash import html

from ampdoctor.analysis.twins.measured import cosine_text
from ampdoctor.analysis.wording import bytes_text, number, percent, scale_text
from ampdoctor_dashboard.data.differences import BOTH, FIXED, NEW
from ampdoctor_dashboard.widgets.badges import BAD, GOOD, PLAIN, badge, grade_badge, severity_badge
from ampdoctor_dashboard.widgets.compared_metrics import metric_name
from ampdoctor_dashboard.widgets.frames import note
from ampdoctor_dashboard.widgets.links import link
from ampdoctor_dashboard.widgets.prose import cut, prose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from ampdoctor.finding import Finding
    from ampdoctor_dashboard.data.comparison import Change, Metric, Row
    from ampdoctor_dashboard.view import View
    from ampdoctor_dashboard.words import Words

LONGEST = 400
"""Characters of a setting that are shown."""

TIMES = "\N{MULTIPLICATION SIGN}"

NONE = "\N{EN DASH}"
"""Stands where nothing was recorded."""


def metric_table(rows: Sequence[Row], names: Sequence[str], words: Words) -> Component:
    """Return all metrics: of the run that the others are compared with, and of the others with what changed."""
    head = [html.Th(words("metric"), scope="col"), html.Th(cut(names[0], 28), title=names[0], scope="col")]
    head += [html.Th(cut(name, 28), title=name, scope="col", colSpan=2) for name in names[1:]]
    body = [html.Tr(_cells(row, words)) for row in rows]
    table = html.Table([html.Thead(html.Tr(head)), html.Tbody(body)], className="figures metrics-table")
    return html.Div(table, className="figures-scroll", tabIndex=0)


def _cells(row: Row, words: Words) -> list[Component]:
    title, why = metric_name(row.metric.key, words)
    named = html.Span([html.Span(title, title=why), grade_badge(row.metric.grade, words)], className="figures-named")
    cells = [html.Th(named, scope="row"), html.Td(value_text(row.metric, row.base), className="figure")]
    for own in row.changes:
        cells.append(html.Td(value_text(row.metric, own.value), className="figure"))
        cells.append(html.Td(_changed(row.metric, row.base, own, words)))
    return cells


def value_text(metric: Metric, value: float | None) -> str:
    """Return a number as people read it."""
    if value is None:
        return NONE
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "inf"
    if metric.key == "cosine":
        return cosine_text(value)
    formats = {"share": percent, "bytes": bytes_text, "scale": scale_text, "number": number}
    return formats[metric.kind](value)


def _changed(metric: Metric, base: float | None, own: Change, words: Words) -> Any:
    """Return what changed in words: which way, and by how much."""
    if own.verdict == "unknown":
        why = words("One of the two was not recorded, or can't be told: a gradient of zeros has no direction.")
        return html.Span(words("can't be compared"), className="faint", title=why)
    if own.verdict == "same":
        return html.Span(words("the same"), className="faint")
    how = _amount(metric, base, own, words)
    if own.verdict == "other":
        return html.Span(how, className="figure faint")
    worse = own.verdict == "worse"
    mark = badge(words("worse") if worse else words("better"), BAD if worse else GOOD)
    return html.Span([mark, html.Span(how, className="figure")], className="figures-named")


def _amount(metric: Metric, base: float | None, own: Change, words: Words) -> str:
    if base is None or own.value is None or own.relative is None:
        return ""
    if metric.kind == "share":
        return words("{points} points", points=f"{100.0 * (own.value - base):+.3g}")
    if not np.isfinite(own.relative):
        return words("was 0")
    times = own.value / base
    return f"{TIMES} {times:.3g}" if times >= 2.0 or 0.0 < times <= 0.5 else f"{100.0 * own.relative:+.3g} %"


def finding_list(changed: Sequence[tuple[str, Finding]], base: View, other: View, words: Words) -> Component:
    """Return what became of the findings, each with a link to the run that has it."""
    if not changed:
        return note(words("Nothing was found in either run."))
    kinds = {
        NEW: (words("new"), BAD, other),
        FIXED: (words("gone"), GOOD, base),
        BOTH: (words("in both"), PLAIN, other),
    }
    entries = []
    for kind, finding in changed:
        title, tone, view = kinds[kind]
        why = words("See the finding on the page Diagnosis of its run")
        name = link(finding.name, "diagnosis", view, why=why, finding=finding.fingerprint)
        text = html.Div([html.Div(prose(words, finding.summary)), html.Div(name, className="finding-name")])
        entries.append(html.Li([badge(title, tone), severity_badge(finding.severity, words), text]))
    return html.Ul(entries, className="reason-list")


def setting_table(
    settings: Sequence[tuple[str, list[str]]], same: int, names: Sequence[str], words: Words
) -> list[Component]:
    """Return the settings that differ, and how many do not."""
    rest = note(words("{count} other settings are the same.", count=same))
    if not settings:
        return [html.P(words("No setting differs.")), rest]
    head = [html.Th(words("setting"), scope="col"), *(html.Th(cut(n, 28), title=n, scope="col") for n in names)]
    body = [
        html.Tr(
            [
                html.Th(_setting_name(name, words), scope="row"),
                *(html.Td(cut(v, LONGEST) or NONE, title=v[:2000]) for v in values),
            ]
        )
        for name, values in settings
    ]
    table = html.Table([html.Thead(html.Tr(head)), html.Tbody(body)], className="figures settings-table")
    return [html.Div(table, className="figures-scroll", tabIndex=0), rest]


def _setting_name(name: str, words: Words) -> str:
    """Return what to call a setting; those of torch and of the recorder are called what they call them."""
    own = {
        "precision really used": words("precision really used"),
        "command": words("command"),
        "device": words("device"),
        "world size": words("world size"),
        "commit": words("commit"),
        "host": words("host"),
    }
    return own.get(name) or cut(name)
