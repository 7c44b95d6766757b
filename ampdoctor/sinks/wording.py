"""A finding as a page for a tracker: Markdown, which all of them show."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.finding import Finding, Fix

SITES_SHOWN = 8
"""Sites named; the rest are counted."""


def title(finding: Finding) -> str:
    """Return what a finding is called where there is room for a few words: `ERROR gradient-underflow`."""
    return f"{finding.severity.value.upper()} {finding.name}"


def key(finding: Finding) -> str:
    """Return what tells a finding from others of its run: the rule and, where it is about one, the line of code.

    It may be part of a tag, a path and a search: `unscale-twice.train.py.88`.
    """
    file, _, line = (finding.location.source or "").rpartition(":")
    return ".".join(part for part in (finding.name, PurePath(file).name, line) if part)


def markdown(finding: Finding) -> str:
    """Return the finding with its evidence, place and fixes."""
    return "\n".join(_lines(finding)) + "\n"


def fenced(text: str, language: str = "") -> str:
    """Return `text` as a block that Markdown leaves as it is."""
    return f"```{language}\n{text.strip(chr(10))}\n```"


def _lines(finding: Finding) -> Iterator[str]:
    yield f"**{title(finding)}** ({finding.code}, {finding.confidence.value} confidence): {finding.summary}\n"
    for evidence in finding.evidence:
        yield f"- {evidence.text} ({evidence.grade.value})"
    yield f"\n{_place(finding)}"
    for fix in finding.fixes:
        yield from _fix(fix)
    for consequence in finding.consequences:
        yield f"\nFollows: {title(consequence)}: {consequence.summary}"


def _place(finding: Finding) -> str:
    location = finding.location
    hidden = len(location.sites) - SITES_SHOWN
    sites = ", ".join(f"`{site}`" for site in location.sites[:SITES_SHOWN])
    steps = [str(s) for s in dict.fromkeys((location.first_step, location.last_step)) if s is not None]
    parts = [
        f"{sites} and {hidden} more" if hidden > 0 else sites,
        f"step {' to '.join(steps)}" if steps else "",
        f"line `{location.source}`" if location.source else "",
    ]
    return "; ".join(filter(None, parts))


def _fix(fix: Fix) -> Iterator[str]:
    yield f"\nFix: {fix.title}. {fix.expected} ({fix.grade.value})\n"
    if fix.code.strip():
        yield fenced(fix.code, "python")
