"""The docstring of a rule, split into what a page shows: headings, paragraphs, entries of lists, code."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.rules.base import Rule

ENTRY = re.compile(r"\s*([-*]|\d+\.)\s+")
"""How an entry of a list begins."""

_PARAGRAPH_INDENT = 4
_CODE_INDENT = 8


def first_line(rule: type[Rule]) -> str:
    """Return what is wrong where the rule speaks, in one sentence."""
    return (inspect.getdoc(rule) or "").partition("\n\n")[0]


def rule_blocks(rule: type[Rule]) -> Iterator[tuple[str, str]]:
    """Return the rest of the rule's docstring: what it means, why it matters, how to fix it."""
    return blocks((inspect.getdoc(rule) or "").partition("\n\n")[2])


def blocks(doc: str) -> Iterator[tuple[str, str]]:
    """Split a docstring into (kind, text): heading, code (a line), blank, paragraph (lines joined)."""
    paragraph: list[str] = []
    for line in [*doc.splitlines(), ""]:
        kind = _kind(line)
        if paragraph and (kind != "paragraph" or ENTRY.match(line)):
            yield "paragraph", " ".join(paragraph)
            paragraph.clear()
        if kind == "paragraph":
            paragraph.append(line.strip())
        else:
            yield kind, line


def _kind(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    if not line.strip():
        return "blank"
    if indent < _PARAGRAPH_INDENT:
        return "heading"
    return "code" if indent >= _CODE_INDENT else "paragraph"
