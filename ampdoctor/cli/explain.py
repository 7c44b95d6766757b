"""`ampdoctor explain`: the page of a rule, or the list of all rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ampdoctor.report.layout import Page
from ampdoctor.report.rule_text import ENTRY, first_line, rule_blocks
from ampdoctor.report.terminal import console, show
from ampdoctor.report.text import STYLES
from ampdoctor.rules import discover, find_rule

if TYPE_CHECKING:
    from ampdoctor.rules.base import Rule


def explain(
    rule: Annotated[
        str | None, typer.Argument(metavar="RULE", help="Name or code of a rule; all rules are listed without it.")
    ] = None,
) -> None:
    """Explain a rule and how to fix what it finds."""
    to = console()
    show(rule_list(to.width) if rule is None else rule_page(find_rule(rule), to.width), to)


def rule_list(width: int) -> Page:
    """Return the list of all rules."""
    page = Page(width)
    for rule in discover():
        page.say(first_line(rule), label=f"{rule.code}  {rule.name:24} ", label_style="bold")
    page.blank()
    page.say("ampdoctor explain NAME shows what a rule means, why it matters and how to fix it.", style="dim")
    return page


def rule_page(rule: type[Rule], width: int) -> Page:
    """Return everything there is to know of a rule."""
    page = Page(width)
    page.say(rule.name, style="bold", tail=f"({rule.code}, {rule.severity.value})")
    page.say(first_line(rule))
    page.blank()
    _docstring(page, rule)
    page.blank()
    if rule.thresholds:
        page.say("Thresholds", style="bold")
    for name, threshold in rule.thresholds.items():
        page.say(threshold.source, indent=2, label=f"{name} = {threshold.value:g}  ", hang=2)
    if rule.thresholds:
        page.say(f"They are set in pyproject.toml, in [tool.ampdoctor.rules.{rule.name}].", indent=2, style="dim")
    page.blank()
    for title, examples in (("Fires on", rule.SICK), ("Stays silent on", rule.HEALTHY)):
        page.say(title, style=STYLES[rule.severity] if examples is rule.SICK else "bold green")
        for example in examples:
            page.say(example.title, indent=2, label="- ")
    return page


def _docstring(page: Page, rule: type[Rule]) -> None:
    """Add a rule's docstring: headings bold, code line by line, paragraphs and list entries wrapped."""
    for kind, text in rule_blocks(rule):
        if kind == "blank":
            page.blank()
        elif kind == "heading":
            page.say(text, style="bold")
        elif kind == "code":
            page.line(text, style="cyan")
        else:
            entry = ENTRY.match(text)
            page.say(text, indent=2, hang=entry.end() if entry else 0)
