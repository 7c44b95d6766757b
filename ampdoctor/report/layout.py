"""A page of text for the terminal: paragraphs wrapped between words only, code and paths left whole."""

from __future__ import annotations

import textwrap

from rich.text import Text

PLAIN_WIDTH = 100
"""Width of everything that does not go to a terminal, so that files and logs compare equal."""

WIDEST = 110
"""Longer lines are hard to read, however wide the terminal."""

_NARROWEST = 30


class Page:
    """Collects lines with their styles.

    Args:
        width: columns at which paragraphs are wrapped.
    """

    def __init__(self, width: int = PLAIN_WIDTH) -> None:
        self._width = min(max(width, _NARROWEST), WIDEST)
        self._lines: list[Text] = []

    def blank(self) -> None:
        """Add an empty line, but never two in a row and none at the top."""
        if self._lines and self._lines[-1].plain:
            self._lines.append(Text())

    def say(
        self,
        text: str,
        *,
        style: str = "",
        indent: int = 0,
        label: str = "",
        label_style: str = "",
        hang: int | None = None,
        tail: str = "",
    ) -> None:
        """Add a paragraph.

        Args:
            text: what it says.
            style: rich style of the text.
            indent: columns before every line.
            label: stands before the text, on the first line only.
            label_style: rich style of the label.
            hang: further columns before the lines after the first; by default the text stays clear of the label.
            tail: stands after the text, dim, never broken.
        """
        lead = " " * indent
        further = " " * (indent + (len(label) if hang is None else hang))
        # A joint of no-break spaces keeps label and tail whole; textwrap breaks at ASCII white space only.
        words = f"{joined(label)}{clean(text)}{' ' + joined(tail) if tail else ''}"
        lines = textwrap.wrap(
            words, self._width, initial_indent=lead, subsequent_indent=further,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        for number, line in enumerate(lines):
            shown = Text(line.replace("\u00a0", " "), style)
            if number == 0 and label:
                shown.stylize(f"not dim {label_style}".strip(), indent, indent + len(label))
            if number == len(lines) - 1 and tail:
                shown.stylize("not bold dim", len(line) - len(tail))
            self._lines.append(shown)

    def code(self, text: str, *, indent: int = 0) -> None:
        """Add code, line by line as it is; lines of a diff are told apart."""
        for line in textwrap.dedent(text).strip("\n").splitlines():
            style = {"+": "green", "-": "red"}.get(line[:1], "cyan")
            self.line(line, style=style, indent=indent)

    def line(self, text: str, *, style: str = "", indent: int = 0) -> None:
        """Add one line that is never wrapped."""
        self._lines.append(Text((" " * indent + clean(text)).rstrip(), style))

    def text(self) -> Text:
        """Return the page with its styles."""
        return Text("\n").join(self._lines)

    def plain(self) -> str:
        """Return the page as plain text that ends in a line feed."""
        return self.text().plain.rstrip("\n") + "\n"


def clean(text: str) -> str:
    """Put text on one line and replace control characters: what a trace holds must not drive the terminal."""
    return "".join(c if c.isprintable() or c in "\t\u00a0" else _stand_in(c) for c in text)


def _stand_in(character: str) -> str:
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"


def joined(text: str) -> str:
    """Return `text` such that no line is broken within it."""
    return clean(text).replace(" ", "\u00a0")
