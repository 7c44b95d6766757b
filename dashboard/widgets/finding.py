"""One finding: what is wrong, since when and where, what shows it, what to change, and what merely follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import html

from ampdoctor.finding import Confidence, Grade
from ampdoctor_dashboard.data.recorded import known_sites, site_key
from ampdoctor_dashboard.data.tried import nearest
from ampdoctor_dashboard.widgets.badges import badge, grade_badge, severity_badge
from ampdoctor_dashboard.widgets.evidence_charts import evidence_charts
from ampdoctor_dashboard.widgets.fold import fold
from ampdoctor_dashboard.widgets.frames import code
from ampdoctor_dashboard.widgets.links import link
from ampdoctor_dashboard.widgets.prose import cut, prose
from ampdoctor_dashboard.widgets.rule_page import explain_button
from ampdoctor_dashboard.widgets.tried import tried_table

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.analysis.twins.measured import MeasuredStep
    from ampdoctor.finding import Evidence, Finding, Fix
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.view import View
    from ampdoctor_dashboard.words import Words

SITES_SHOWN = 6
"""Sites that are named at once; the others unfold."""

MOST_SITES = 200
"""Sites that are named at all."""

EVIDENCE_SHOWN = 5
"""Sentences of evidence that are shown at once; the others unfold."""


OTHERS = 6
"""Twin steps that are listed beside the one that a finding is about."""


@dataclass(frozen=True)
class Setting:
    """What a finding is shown with.

    Attributes:
        opened: the run.
        view: what links lead on from.
        style: colours and language.
        tried: what twin steps measured.
    """

    opened: OpenedRun
    view: View
    style: Style
    tried: tuple[MeasuredStep, ...] = ()

    @property
    def words(self) -> Words:
        """The language."""
        return self.style.words


def finding_item(finding: Finding, key: str, at: Setting) -> Component:
    """Return a finding as an item of an accordion; `key` tells it from the others."""
    return dmc.AccordionItem(
        [
            dmc.AccordionControl(_head(finding, at.words)),
            dmc.AccordionPanel(html.Div(_body(finding, key, at), className="finding-body")),
        ],
        value=key,
        className=f"finding finding-{finding.severity.value}",
    )


def _head(finding: Finding, words: Words) -> Component:
    since = finding.location.first_step
    labels = [
        severity_badge(finding.severity, words),
        html.Span(finding.name, className="finding-name"),
        *([] if since is None else [html.Span(words("since step {step}", step=since), className="faint")]),
    ]
    follows = len(finding.consequences)
    if follows:
        many = words("{count} more findings follow from it", count=follows)
        labels.append(html.Span(many if follows > 1 else words("1 more finding follows from it"), className="faint"))
    return html.Div(
        [
            html.Div(labels, className="finding-labels"),
            html.Div(prose(words, finding.summary), className="finding-summary"),
        ]
    )


def _body(finding: Finding, key: str, at: Setting) -> list[Component]:
    words = at.words
    shows = [_part(words("What shows it")), *_evidence(finding.evidence, key, words)]
    change = [_part(words("What to change")), *_fixes(finding.fixes, words)]
    columns = [html.Div(shows)] + ([html.Div(change)] if finding.fixes else [])
    return [
        _where(finding, key, at),
        *evidence_charts(at.opened, finding, at.style),
        html.Div(columns, className="finding-columns"),
        *_tried(finding, key, at),
        *_consequences(finding, key, at),
    ]


def _part(title: str) -> Component:
    return html.H4(title, className="finding-part")


def _where(finding: Finding, key: str, at: Setting) -> Component:
    words, location = at.words, finding.location
    rows = [(words("When"), _steps(finding, at))]
    if location.sites:
        rows.append((words("Where"), _sites(location.sites, key, at)))
    if location.source:
        rows.append((words("Line"), [html.Code(cut(location.source, 120), title=location.source)]))
    if location.ranks not in ((), (0,)):
        rows.append((words("Ranks"), [", ".join(map(str, location.ranks[:32]))]))
    rows.append((words("Sure"), _confidence(finding, key, words)))
    parts = [html.Div([html.Dt(title), html.Dd(inside)]) for title, inside in rows if inside]
    return html.Dl(parts, className="finding-facts")


def _steps(finding: Finding, at: Setting) -> list[Any]:
    words, first, last = at.words, finding.location.first_step, finding.location.last_step
    if first is None:
        return []
    if last is None:
        text = words("since step {first}", first=first)
    elif last == first:
        text = words("step {first}", first=first)
    else:
        text = words("steps {first} to {last}", first=first, last=last)
    why = words("See step {first} on the Timeline", first=first)
    return [link(text, "timeline", at.view, why=why, step=first)]


def _sites(sites: tuple[str, ...], key: str, at: Setting) -> list[Any]:
    known = known_sites(at.opened, sites[:MOST_SITES])
    shown = [_site(site, at, known.get(site)) for site in sites[:MOST_SITES]]
    rest = len(sites) - SITES_SHOWN
    if rest <= 0:
        return shown
    more = fold(f"sites-{key}", at.words("{count} more", count=rest), *shown[SITES_SHOWN:])
    return [*shown[:SITES_SHOWN], more]


def _site(site: str, at: Setting, number: int | None) -> Component:
    """Return a site with its links; one at which no tensor was recorded leads nowhere."""
    words = at.words
    role, _, name = site_key(site).partition(":")
    label = [html.Span(cut(name or site), title=site)]
    tail = [html.Span(role, className="site-role")] if role else []
    if number is None:
        return html.Span([*label, *tail], className="site-chip")
    key = at.opened.tensors.sites[number].key
    layers = html.Span(className="icon icon-layers")
    unseen = html.Span(words("on the page Layers"), className="unseen")
    return html.Span(
        [
            link(label, "spectrum", at.view, why=words("Its exponents on the page Spectrum"), site=key),
            *tail,
            link([layers, unseen], "layers", at.view, why=words("The site on the page Layers"), look="site-layers",
                 site=key, role=role),
        ],
        className="site-chip",
    )  # fmt: skip


def _confidence(finding: Finding, key: str, words: Words) -> list[Any]:
    text, why = {
        Confidence.HIGH: (words("high confidence"), words("The cause is sure.")),
        Confidence.MEDIUM: (words("medium confidence"), words("The cause is likely; another is possible.")),
        Confidence.LOW: (words("low confidence"), words("The cause is a guess that fits what was recorded.")),
    }[finding.confidence]
    explain = explain_button(finding.name, key, words("What does this mean?"), words)
    return [grade_badge(finding.grade, words), badge(text, why=why), badge(finding.code), explain]


def _evidence(evidence: tuple[Evidence, ...], key: str, words: Words) -> list[Component]:
    entries = [html.Li([html.Span(prose(words, e.text)), grade_badge(e.grade, words)]) for e in evidence]
    first, rest = entries[:EVIDENCE_SHOWN], entries[EVIDENCE_SHOWN:]
    shown: list[Component] = [html.Ul(first, className="evidence-list")]
    if rest:
        head = words("{count} more", count=len(rest))
        shown.append(fold(f"evidence-{key}", head, html.Ul(rest, className="evidence-list")))
    return shown


def _fixes(fixes: tuple[Fix, ...], words: Words) -> list[Component]:
    return [_fix(rank, fix, words) for rank, fix in enumerate(fixes, 1)]


def _fix(rank: int, fix: Fix, words: Words) -> Component:
    parts: list[Component] = [
        html.Div([html.Span(str(rank), className="fix-rank"), html.H5(prose(words, fix.title))], className="fix-head")
    ]
    if fix.expected:
        expected = html.Span(prose(words, fix.expected))
        parts.append(html.Div([expected, grade_badge(fix.grade, words)], className="fix-expected"))
    if fix.code.strip():
        parts.append(code(fix.code, copy=words("copy")))
    return html.Div(parts, className="fix")


def _tried(finding: Finding, key: str, at: Setting) -> list[Component]:
    """Return what the twin measured, where the finding or one of its fixes rests on it."""
    grades = {finding.grade, *(fix.grade for fix in finding.fixes), *(e.grade for e in finding.evidence)}
    step = nearest(at.tried, finding.location.first_step, finding.location.last_step)
    if step is None or Grade.MEASURED not in grades:
        return []
    words, others = at.words, [s for s in at.tried if s is not step][-OTHERS:]
    if not others:
        return [tried_table(step, words)]
    head = words("The other twin steps: {count}", count=len(others))
    return [tried_table(step, words), fold(f"tried-{key}", head, *(tried_table(s, words) for s in others))]


def _consequences(finding: Finding, key: str, at: Setting) -> list[Component]:
    if not finding.consequences:
        return []
    words = at.words
    entries = [
        html.Li(
            [
                severity_badge(c.severity, words),
                html.Div(
                    [
                        html.Span(prose(words, c.summary)),
                        html.Div(
                            [
                                explain_button(c.name, f"{key}-{n}", c.name, words),
                                *([] if c.location.first_step is None else _steps(c, at)),
                            ],
                            className="tools",
                        ),
                    ]
                ),
            ]
        )
        for n, c in enumerate(finding.consequences)
    ]
    head = words("What merely follows from it: {count}", count=len(entries))
    return [fold(f"follows-{key}", head, html.Ul(entries, className="consequence-list"), look="follows")]
