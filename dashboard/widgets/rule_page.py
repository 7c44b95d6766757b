"""The page of a rule: what it means, why it matters, how to fix it, what it is not to be mistaken for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import html

from ampdoctor.report.rule_text import ENTRY, first_line, rule_blocks
from ampdoctor.rules import find_rule
from ampdoctor_dashboard.widgets.badges import badge, severity_badge
from ampdoctor_dashboard.widgets.prose import prose

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.rules.base import Rule
    from ampdoctor_dashboard.words import Words

EXPLAIN = "explain-rule"
"""Kind of the ids of buttons that open the page of a rule."""


def explain_button(rule: str, at: str, inside: Any, words: Words, *, look: str = "textbutton") -> Component:
    """Return a button that opens the page of `rule`; `at` tells it from other such buttons."""
    named: Any = {"aria-haspopup": "dialog"}
    title = words("What the rule looks for, why it matters and how to fix it")
    return html.Button(
        inside, id={"kind": EXPLAIN, "rule": rule, "at": at}, className=look, title=title, type="button", **named
    )


def rule_page(name: str, words: Words) -> Component:
    """Return all that there is to read of the rule called `name`.

    Raises:
        UnknownRuleError: there is none.
    """
    rule = find_rule(name)
    return html.Div(
        [
            dmc.Group([severity_badge(rule.severity, words), badge(rule.code)], gap="xs"),
            html.P(prose(words, first_line(rule)), className="rule-first"),
            *_sections(rule, words),
            *_thresholds(rule, words),
        ],
        className="rule-page",
    )


def _sections(rule: type[Rule], words: Words) -> list[Component]:
    """Return headings, paragraphs, lists and code, in the order of the docstring."""
    shown: list[Component] = []
    code: list[str] = []
    entries: list[Component] = []

    def flush() -> None:
        if code:
            shown.append(html.Pre(html.Code("\n".join(code)), tabIndex=0))
        if entries:
            shown.append(html.Ul([*entries]))
        code.clear()
        entries.clear()

    for kind, text in rule_blocks(rule):
        entry = ENTRY.match(text) if kind == "paragraph" else None
        if kind == "code":
            code.append(text.strip("\n")[8:])
        elif entry:
            entries.append(html.Li(prose(words, text[entry.end() :])))
        elif kind != "blank":
            flush()
            shown.append(html.H3(prose(words, text)) if kind == "heading" else html.P(prose(words, text)))
        elif code:
            flush()
    flush()
    return shown


def _thresholds(rule: type[Rule], words: Words) -> list[Component]:
    if not rule.thresholds:
        return []
    listed = [
        html.Li([html.Code(f"{name} = {threshold.value:g}"), " ", *prose(words, threshold.source)])
        for name, threshold in rule.thresholds.items()
    ]
    where = words("They are set in pyproject.toml, in {table}.", table=f"[tool.ampdoctor.rules.{rule.name}]")
    return [html.H3(words("Thresholds")), html.Ul(listed), dmc.Text(where, size="sm", className="faint")]
