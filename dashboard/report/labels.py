"""The words of the report's template: what stands there in every report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampdoctor_dashboard.words import Words


@dataclass(frozen=True)
class Labels:
    """Says what the template says, in one language.

    Attributes:
        words: the language.
        fixed: what needs nothing filled in, by the name that the template has for it.
    """

    words: Words
    fixed: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.fixed[name]

    def title(self, name: str) -> str:
        """Return the heading of the report."""
        return self.words("Report of the run {name}", name=name)

    def more(self, count: int) -> str:
        """Return what unfolds `count` more things."""
        return self.words("{count} more", count=count)

    def follows(self, count: int) -> str:
        """Return the heading of the findings that follow from another."""
        return self.words("What merely follows from it: {count}", count=count)

    def passed(self, count: int) -> str:
        """Return the heading of the rules that found nothing."""
        return self.words("Examined, and nothing found: {count} rules", count=count)

    def accepted(self, reason: str) -> str:
        """Return why a finding is accepted."""
        return self.words("Accepted in pyproject.toml. Reason: {reason}", reason=reason)

    def written(self, version: str) -> str:
        """Return the last line."""
        return self.words(
            "Written by ampdoctor {version}. Everything is in this file; nothing is loaded from elsewhere.",
            version=version,
        )


def labels(words: Words) -> Labels:
    """Return the words of the template in one language."""
    return Labels(words, {**_headings(words), **_kinds(words), **_remarks(words)})


def _headings(words: Words) -> dict[str, str]:
    return {
        "findings": words("Findings"),
        "figures": words("Figures"),
        "examined": words("What was examined"),
        "unexamined": words("What could not be examined, and why"),
        "when": words("When"),
        "where": words("Where"),
        "line": words("Line"),
        "ranks": words("Ranks"),
        "shows": words("What shows it"),
        "change": words("What to change"),
        "precision": words("Precision used:"),
        "meaning": words("What does this mean?"),
    }


def _kinds(words: Words) -> dict[str, str]:
    return {
        "observed": words("observed"),
        "estimated": words("estimated"),
        "measured": words("measured"),
        "error": words("error"),
        "warning": words("warning"),
        "note": words("note"),
        "high": words("high confidence"),
        "medium": words("medium confidence"),
        "low": words("low confidence"),
        "incomplete": words("incomplete"),
        "notice": words("notice"),
        "failed": words("rule failed"),
        "accepted": words("accepted"),
    }


def _remarks(words: Words) -> dict[str, str]:
    return {
        "sound": words("No rule that had what it needs found anything."),
        "too little": words("No rule had what it needs: what was recorded is too little to judge by."),
        "too large": words("This figure is too large for a file to send; `ampdoctor view` shows it."),
        "no script": words(
            "Figures are drawn by the script in this file, which is switched off here; "
            "nothing is loaded from elsewhere."
        ),
    }
