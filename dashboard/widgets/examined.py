"""What a diagnosis rests on: what was looked at and found sound, and what could not be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from ampdoctor.errors import UnknownRuleError
from ampdoctor.report.rule_text import first_line
from ampdoctor.rules import find_rule
from ampdoctor_dashboard.widgets.badges import BAD, PLAIN, WARN, badge
from ampdoctor_dashboard.widgets.fold import fold
from ampdoctor_dashboard.widgets.frames import card, note
from ampdoctor_dashboard.widgets.prose import prose
from ampdoctor_dashboard.widgets.rule_page import explain_button

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.diagnosis import Diagnosis, NotRun
    from ampdoctor_dashboard.words import Words


def found_sound(diagnosis: Diagnosis, words: Words) -> Component:
    """Return the rules that had what they need and found nothing."""
    title = words("Examined, and nothing found: {count} rules", count=len(diagnosis.passed))
    if not diagnosis.passed:
        return card(title, note(words("No rule had what it needs: what was recorded is too little to judge by.")))
    explain = words("Each of these had what it needs and would have spoken. Press one to read what it looks for.")
    rules = html.Ul([html.Li(_rule(name, "passed", words)) for name in diagnosis.passed], className="rule-list")
    folded = fold("passed", words("What was looked for"), rules, unfolded=not diagnosis.faults)
    return card(title, folded, explain=explain)


def not_examined(diagnosis: Diagnosis, words: Words) -> Component | None:
    """Return what could not be judged, what is missing, and what the user accepts; None where there is none of it."""
    parts = [
        *_sentences(words("incomplete"), WARN, diagnosis.examined.gaps, words),
        *_sentences(words("notice"), PLAIN, diagnosis.notices, words),
        *_failed(diagnosis, words),
        *_accepted(diagnosis, words),
        *_skipped(diagnosis, words),
    ]
    if not parts:
        return None
    explain = words("A rule that lacks what it needs is never counted as passed.")
    return card(words("What could not be examined, and why"), html.Ul(parts, className="reason-list"), explain=explain)


def _rule(name: str, at: str, words: Words) -> list[Any]:
    try:
        told = prose(words, first_line(find_rule(name)))
    except UnknownRuleError:
        return [html.Code(name)]
    return [explain_button(name, at, name, words), html.Span(told, className="faint")]


def _entry(label: str, tone: str, inside: Any) -> Component:
    return html.Li([badge(label, tone), html.Div(inside)])


def _sentences(label: str, tone: str, sentences: tuple[str, ...], words: Words) -> list[Component]:
    return [_entry(label, tone, prose(words, sentence)) for sentence in sentences]


def _failed(diagnosis: Diagnosis, words: Words) -> list[Component]:
    why = words("A failed rule is a defect of ampdoctor, and says nothing about the run: please report it.")
    return [
        _entry(words("rule failed"), BAD, [html.Code(failed.rule), f" {failed.reason[:400]} ", note(why)])
        for failed in diagnosis.crashed
    ]


def _accepted(diagnosis: Diagnosis, words: Words) -> list[Component]:
    return [
        _entry(
            words("accepted"),
            PLAIN,
            [
                html.Div(prose(words, ignored.finding.summary)),
                note(words("Accepted in pyproject.toml. Reason: {reason}", reason=ignored.reason[:400])),
            ],
        )
        for ignored in diagnosis.ignored
    ]


def _skipped(diagnosis: Diagnosis, words: Words) -> list[Component]:
    """Return the skipped rules by why they were: of a run without a scaler, a dozen lack the same."""
    by_reason: dict[str, list[NotRun]] = {}
    for skipped in diagnosis.skipped:
        by_reason.setdefault(skipped.reason, []).append(skipped)
    return [
        _entry(
            words("{count} rules", count=len(rules)) if len(rules) > 1 else words("1 rule"),
            PLAIN,
            [
                html.Div(prose(words, reason)),
                html.Div([explain_button(r.rule, "skipped", r.rule, words) for r in rules], className="rule-names"),
            ],
        )
        for reason, rules in by_reason.items()
    ]
