"""What the report says of a diagnosis, in pieces that its template puts in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampdoctor.errors import UnknownRuleError
from ampdoctor.report.rule_text import ENTRY, first_line, rule_blocks
from ampdoctor.rules import find_rule
from ampdoctor_dashboard.words.prose import cut, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Location
    from ampdoctor_dashboard.words import Words

LONGEST = 120
"""Characters of a name; the whole of it is its title."""

SITES = 40
"""Sites that are named of one finding."""


class Piece(NamedTuple):
    """A piece of a sentence: what is shown, whether it is code, and all of it where it was cut."""

    text: str
    code: bool
    whole: str = ""


class Block(NamedTuple):
    """A part of a rule's page: heading, paragraph, entry or code."""

    kind: str
    pieces: list[Piece]


def prose(words: Words, english: str) -> list[Piece]:
    """Return a sentence in the reader's language; what stands in backticks is code."""
    return [_piece(text, code=code) for text, code in pieces(words, english)]


def _piece(text: str, *, code: bool) -> Piece:
    shown = cut(text, LONGEST) if code else text
    return Piece(shown, code, text if shown != text else "")


def when(location: Location, words: Words) -> str:
    """Return the steps of a finding; empty where it has none."""
    first, last = location.first_step, location.last_step
    if first is None:
        return ""
    if last is None:
        return words("since step {first}", first=first)
    return (
        words("step {first}", first=first)
        if last == first
        else words("steps {first} to {last}", first=first, last=last)
    )


def sites_of(location: Location) -> tuple[list[Piece], int]:
    """Return the sites of a finding that are named, and how many are not."""
    return [_piece(site, code=True) for site in location.sites[:SITES]], max(len(location.sites) - SITES, 0)


def said_steps(diagnosis: Diagnosis, words: Words) -> list[tuple[str, int]]:
    """Return what the diagnosis rests on, in numbers."""
    examined = diagnosis.examined
    return [
        (words("steps recorded"), examined.steps),
        (words("steps examined"), examined.examined_steps),
        (words("tensors"), examined.tensors),
        (words("modules"), examined.modules),
    ]


def skipped_by_reason(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Return the rules that could not look, by why."""
    by_reason: dict[str, list[str]] = {}
    for rule in diagnosis.skipped:
        by_reason.setdefault(rule.reason, []).append(rule.rule)
    return by_reason


def explained(name: str, words: Words) -> list[Block]:
    """Return the page of a rule; nothing where there is no such rule."""
    try:
        rule = find_rule(name)
    except UnknownRuleError:
        return []
    return [Block("paragraph", prose(words, first_line(rule))), *_blocks(rule_blocks(rule), words)]


def _blocks(blocks: Iterator[tuple[str, str]], words: Words) -> Iterator[Block]:
    code: list[str] = []
    for kind, text in blocks:
        if kind == "code":
            code.append(text[8:])
            continue
        if code:
            yield Block("code", [Piece("\n".join(code), code=True)])
            code = []
        entry = ENTRY.match(text) if kind == "paragraph" else None
        if kind != "blank":
            yield Block("entry" if entry else kind, prose(words, text[entry.end() :] if entry else text))
    if code:
        yield Block("code", [Piece("\n".join(code), code=True)])
