"""Sentences of a diagnosis, with the names in them set as code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from ampdoctor_dashboard.words.prose import cut as shortened
from ampdoctor_dashboard.words.prose import pieces

if TYPE_CHECKING:
    from ampdoctor_dashboard.words import Words

LONGEST = 72
"""Characters of a name that are shown; all of it is told on hover."""


def cut(name: str, most: int = LONGEST) -> str:
    """Return a name as it is shown."""
    return shortened(name, most)


def prose(words: Words, english: str) -> list[Any]:
    """Return a sentence of a diagnosis in the reader's language; what stands in backticks is set as code."""
    return [html.Code(cut(text), title=text) if code else text for text, code in pieces(words, english)]
