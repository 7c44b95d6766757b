"""Sentences of a diagnosis, with the names in them set as code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from ampdoctor_dashboard.words.told import told

if TYPE_CHECKING:
    from ampdoctor_dashboard.words import Words

LONGEST = 72
"""Characters of a name that are shown; all of it is told on hover."""

LONGEST_TEXT = 2000
"""Characters of a sentence that are shown."""


def cut(name: str, most: int = LONGEST) -> str:
    """Return a name as it is shown: of a very long one its beginning and its end, which tells it from others."""
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def prose(words: Words, english: str) -> list[Any]:
    """Return a sentence of a diagnosis in the reader's language; what stands in backticks is set as code."""
    parts = cut(told(words, english), LONGEST_TEXT).split("`")
    if len(parts) % 2 == 0:  # a name has one in it
        return ["`".join(parts)]
    return [html.Code(cut(part), title=part) if n % 2 else part for n, part in enumerate(parts) if part]
