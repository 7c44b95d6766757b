"""The sentences of a language's findings and rule pages, from its files, found by how they begin or end."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from ampdoctor_dashboard.words.patterns import Pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS = ("findings", "rules")
"""Folders of a language: what findings say, in sentences with gaps, and what the pages of rules say."""

_KEY = 3
"""Characters at an end of a sentence by which it is looked up."""

_GOES_ON = ",;:"
"""What the end of a sentence begins with."""


class Sentences:
    """The sentences of one language.

    Attributes:
        exact: those without gaps, English to the other language.
    """

    def __init__(self, sentences: dict[str, str]) -> None:
        self.exact: dict[str, str] = {}
        self._by_begin: dict[str, list[Pattern]] = {}
        self._by_end: dict[str, list[Pattern]] = {}
        self._others: list[Pattern] = []
        for english, other in sentences.items():
            self._add(Pattern(english, other))
            if english[0] in _GOES_ON:  # the end of a sentence: whatever stands before it
                self._add(Pattern("{before_it}" + english, "{before_it}" + other))

    def matching(self, text: str) -> Iterator[tuple[Pattern, dict[str, str]]]:
        """Yield the patterns that `text` matches, most specific first, and what is in their gaps."""
        near = [*self._by_begin.get(text[:_KEY], ()), *self._by_end.get(text[-_KEY:], ()), *self._others]
        for pattern in sorted(near, key=lambda p: p.weight):
            if (values := pattern.match(text)) is not None:
                yield pattern, values

    def _add(self, pattern: Pattern) -> None:
        first, last = pattern.literals[0], pattern.literals[-1]
        if not pattern.gaps:
            self.exact[pattern.english] = pattern.other
        elif len(first) >= _KEY:
            self._by_begin.setdefault(first[:_KEY], []).append(pattern)
        elif len(last) >= _KEY:
            self._by_end.setdefault(last[-_KEY:], []).append(pattern)
        else:
            self._others.append(pattern)


def files_of(lang: str) -> dict[str, dict[str, str]]:
    """Return the sentences of a language by file (`findings/near-oom.json`), English to the other language."""
    found = {}
    for folder in FOLDERS:
        files = resources.files(__package__).joinpath(lang, folder).iterdir()
        for file in sorted((f for f in files if f.name.endswith(".json")), key=lambda f: f.name):
            found[f"{folder}/{file.name}"] = json.loads(file.read_text(encoding="utf-8"))
    return found


@cache
def sentences_of(lang: str) -> Sentences:
    """Return the sentences of a language."""
    return Sentences({english: other for file in files_of(lang).values() for english, other in file.items()})
