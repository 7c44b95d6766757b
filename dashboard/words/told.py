"""What a diagnosis says, in the languages of the dashboard: finished English sentences, translated by patterns.

Rules write English sentences with numbers and names in them. The files of `words/<lang>/findings` map such sentences,
with gaps for what is filled in, to the other language; phrases in the gaps are translated in the same way. What no
pattern knows stays English. README.md beside this file says how to write them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from ampdoctor_dashboard.words import ENGLISH, LANGUAGES
from ampdoctor_dashboard.words.patterns import is_number, kind_of
from ampdoctor_dashboard.words.sentences import sentences_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor_dashboard.words import Words
    from ampdoctor_dashboard.words.sentences import Sentences

LONGEST = 4000
"""Characters of the longest text that is translated; rules write far shorter ones."""

_DEEPEST, _TRIED, _MOST = 7, 4, 1000
"""How deep phrases are looked for in phrases, how many patterns are tried for one, and how many for a text in all."""

_SENTENCES = re.compile(r"(?<=[.!?]) (?=[A-Z`0-9\"'])")

_CODE = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”")

_LETTER = re.compile(r"[A-Za-z]")

_PROSE = re.compile(r"(?<![\w./\\@#-])[A-Za-z][a-z']{1,30},? (?:[a-z][a-z'-]|[A-Z`\d])")

_AS_IT_IS = frozenset({"quote", "error", "exception", "list", "word", "rule"})
"""Gaps for what Python said, for names and for lists of them: quoted, not translated."""


def told(words: Words, english: str) -> str:
    """Return a sentence of a diagnosis in the language of `words`; as it is where no pattern knows it."""
    return _told(words.lang, english)[0]


def missing(words: Words, english: str) -> bool:
    """Return whether a part of `english` that is prose, and neither a name nor code, stays English."""
    return not _told(words.lang, english)[1]


def is_prose(text: str) -> bool:
    """Return whether there are words of a sentence in `text`, and not only names, code and numbers."""
    return bool(_PROSE.search(_CODE.sub("", text)))


@lru_cache(maxsize=8192)
def _told(lang: str, english: str) -> tuple[str, bool]:
    if lang == ENGLISH or lang not in LANGUAGES:
        return english, True
    if len(english) > LONGEST:
        return english, False
    return _Translation(sentences_of(lang)).of(english)


@dataclass
class _Translation:
    """The translation of one text: what was found so far, and how many patterns were tried."""

    sentences: Sentences
    known: dict[str, tuple[str, bool]] = field(default_factory=dict)
    tried: int = 0

    def of(self, text: str, depth: int = 0) -> tuple[str, bool]:
        """Return `text` in the other language, and whether nothing of it stays English that should not."""
        if text not in self.known:
            as_it_is = text, not is_prose(text)
            self.known[text] = as_it_is  # until more is known, and where nothing is
            named = (is_number(text) and not text.endswith("bytes")) or _CODE.fullmatch(text)
            self.known[text] = as_it_is if named or not text else self._best(text, depth)
        return self.known[text]

    def _best(self, text: str, depth: int) -> tuple[str, bool]:
        """Return the first translation that leaves no English, else the one that leaves least."""
        best, left = (text, not is_prose(text)), _letters(text)
        for said, whole in self._ways(text, depth):
            if whole:
                return said, True
            if (still := _letters(said)) < left:
                best, left = (said, False), still
        return best

    def _ways(self, text: str, depth: int) -> Iterator[tuple[str, bool]]:
        """Yield translations: as several sentences, and as one, with or without its full stop."""
        bare = text.strip()
        if bare != text:
            yield self.of(bare, depth)
            return
        if depth > _DEEPEST:
            return
        parts = [] if text in self.sentences.exact else _SENTENCES.split(text)
        if len(parts) > 1:
            yield _one_by_one([self.of(part, depth + 1) for part in parts])
        yield from self._sentence(text, depth)
        if text.endswith("."):
            yield from ((f"{said}。", whole) for said, whole in self._sentence(text[:-1], depth))
        else:
            yield from ((said.removesuffix("。"), whole) for said, whole in self._sentence(f"{text}.", depth))

    def _sentence(self, text: str, depth: int) -> Iterator[tuple[str, bool]]:
        if text in self.sentences.exact:
            yield self.sentences.exact[text], True
            return
        for count, (pattern, values) in enumerate(self.sentences.matching(text), start=1):
            self.tried += 1
            if count > _TRIED or self.tried > _MOST:
                return
            told_values = {gap: self._gap(gap, value, depth + 1) for gap, value in values.items()}
            said = pattern.filled({gap: said for gap, (said, _) in told_values.items()})
            yield said, all(whole for _, whole in told_values.values())

    def _gap(self, gap: str, value: str, depth: int) -> tuple[str, bool]:
        return (value, True) if kind_of(gap) in _AS_IT_IS else self.of(value, depth)


def _letters(text: str) -> int:
    """Return how much English is left in a text: its Latin letters outside code and quotations."""
    return len(_LETTER.findall(_CODE.sub("", text)))


def _one_by_one(sentences: list[tuple[str, bool]]) -> tuple[str, bool]:
    """Return sentences one after the other: without a space after the full stop of Chinese."""
    said = "".join(s if s.endswith("。") else f"{s} " for s, _ in sentences).rstrip()
    return said, all(whole for _, whole in sentences)
