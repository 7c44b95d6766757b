"""Sentences of a diagnosis in pieces: what is text, and what is a name or code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampdoctor_dashboard.words.told import told

if TYPE_CHECKING:
    from ampdoctor_dashboard.words import Words

LONGEST_TEXT = 2000
"""Characters of a sentence that are shown."""


class Piece(NamedTuple):
    """A piece of a sentence: all of it, and whether it is code."""

    text: str
    code: bool


def cut(text: str, most: int) -> str:
    """Return a text as it is shown: of a very long one its beginning and its end, which tells it from others."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def pieces(words: Words, english: str) -> list[Piece]:
    """Return a sentence in the reader's language; what stands in backticks is code."""
    parts = cut(told(words, english), LONGEST_TEXT).split("`")
    if len(parts) % 2 == 0:  # a name has one in it
        return [Piece("`".join(parts), code=False)]
    return [Piece(part, code=bool(n % 2)) for n, part in enumerate(parts) if part]
