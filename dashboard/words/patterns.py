"""Sentences with gaps: `{n} of {n2} steps` finds itself in `3 of 4 steps`, without regular expressions over the text.

The literal parts of a pattern are looked for one after the other, so that no text makes matching slow: it takes time
in proportion to the text's length, whatever is in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_GAP = re.compile(r"\{([a-z][a-z0-9_]*)\}")

_IDEOGRAPH = re.compile("[\u4e00-\u9fff]")

_CHINESE = re.compile("[\u4e00-\u9fff\u3001\u3002\uff08\uff09\uff0c\uff1a\uff1b\u201c\u201d]")
"""Ideographs, and the punctuation that is as wide as they are."""

_LATIN = re.compile("[A-Za-z0-9`%]")

_NUMBER = re.compile(
    r"""
    [<>~]?[ ]?[-+]?\d([\d.,]{0,30}\d)?(e[-+]?\d{1,4})?    # < 0.01
    ([ ]?(%|KiB|MiB|GiB|bytes))?([ ]\(2\^-?\d{1,4}\))?  # 18.5 %, 65536 (2^16)
    | 2\^-?\d{1,5} | [-+]?inf | nan
    """,
    re.VERBOSE,
)

_KINDS = {"n": _NUMBER, "rule": re.compile(r"[a-z0-9]+(-[a-z0-9]+)+"), "word": re.compile(r"`[^`]*`|\S+")}
"""What a gap takes, by its kind; others take anything."""

_LONGEST_KIND = 500
"""Characters of the longest number or name that a gap takes."""


@dataclass(frozen=True)
class Pattern:
    """An English sentence with gaps, and the same in another language.

    Args:
        english: what to find; `{n}` takes a number, `{rule}` the name of a rule, `{word}` something without spaces or
            set as code, and any other gap anything at all, and nothing too where no space stands before it.
        other: what to say; it has the same gaps.
    """

    english: str
    other: str

    @cached_property
    def gaps(self) -> tuple[str, ...]:
        """Names of the gaps, in order."""
        return tuple(_GAP.findall(self.english))

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """The text before, between and after the gaps: one more than there are gaps."""
        return tuple(_GAP.split(self.english)[::2])

    @cached_property
    def weight(self) -> tuple[bool, int, int, str]:
        """How little it says by itself: the pattern that sorts first is the most specific.

        A verdict, which ends in the name of a rule, is taken apart before the sentence in it.
        """
        return "rule" not in self.gaps, -sum(map(len, self.literals)), len(self.gaps), self.english

    def match(self, text: str) -> dict[str, str] | None:
        """Return what is in the gaps where `text` is this sentence; None where it is another."""
        first, *between, last = self.literals
        if not (text.startswith(first) and text.endswith(last)) or len(text) < len(first) + len(last):
            return None
        inner = text[len(first) : len(text) - len(last)]
        for values in (_from_left(inner, first, between), _from_right(inner, between)):
            if values is not None and self._fits(values):
                return dict(zip(self.gaps, values, strict=True))
        return None

    def _fits(self, values: list[str]) -> bool:
        least = map(_least, self.literals)
        gaps = zip(self.gaps, values, least, strict=False)
        return all(len(value) >= fewest and _is_kind(gap, value) for gap, value, fewest in gaps)

    def filled(self, values: dict[str, str]) -> str:
        """Return the other language's sentence with `values` in its gaps."""
        said = ""
        for at, part in enumerate(_GAP.split(self.other)):
            said = _joined(said, values.get(part, "") if at % 2 else part)
        return said


def is_number(text: str) -> bool:
    """Return whether `text` is a number as findings write them: `18.5 %`, `65536 (2^16)`."""
    return _is_kind("n", text)


def _joined(before: str, after: str) -> str:
    """Return two texts as one, with a space where Chinese meets Latin script and none where it meets Chinese."""
    if not before or not after:
        return before + after
    if _CHINESE.match(before.rstrip()[-1:]) and _CHINESE.match(after.lstrip()[:1]):
        return before.rstrip() + after.lstrip()
    ends = before[-1], after[0]
    meets = any(_IDEOGRAPH.match(one) and _LATIN.match(other) for one, other in (ends, ends[::-1]))
    return f"{before} {after}" if meets else before + after


def gaps_of(text: str) -> list[str]:
    """Return the names of the gaps of a sentence, sorted."""
    return sorted(_GAP.findall(text))


def kind_of(gap: str) -> str:
    """Return what a gap takes: its name without the digits at its end (`n` of `n2`)."""
    return gap.rstrip("0123456789")


def _is_kind(gap: str, value: str) -> bool:
    kind = _KINDS.get(kind_of(gap))
    return kind is None or (len(value) <= _LONGEST_KIND and bool(kind.fullmatch(value)))


def _from_left(text: str, before: str, literals: list[str]) -> list[str] | None:
    """Return the texts around `literals`, each of which is taken where it comes first."""
    values = []
    for literal in literals:
        at = text.find(literal, _least(before))
        before = literal
        if at < 0:
            return None
        values.append(text[:at])
        text = text[at + len(literal) :]
    return [*values, text]


def _least(before: str) -> int:
    """Return how many characters a gap after the literal `before` has at least."""
    return 1 if before.endswith(" ") or not before else 0


def _from_right(text: str, literals: list[str]) -> list[str] | None:
    """Return the texts around `literals`, each of which is taken where it comes last."""
    values = []
    for literal in reversed(literals):
        at = text.rfind(literal)
        if at < 0:
            return None
        values.append(text[at + len(literal) :])
        text = text[:at]
    return [*values, text][::-1]
