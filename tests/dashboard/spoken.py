"""Every English text that the dashboard's own code shows, collected from its source."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor.trace.schema import TABLES
from ampdoctor_dashboard.pages import discover

if TYPE_CHECKING:
    from collections.abc import Iterator

DASHBOARD = Path(__file__).parents[2] / "dashboard"


def spoken_texts() -> dict[str, str]:
    """Return each literal of `words("...")`, and what pages are called and for, with the file that says it."""
    found: dict[str, str] = {}
    for file in sorted(DASHBOARD.rglob("*.py")):
        name = str(file.relative_to(DASHBOARD))
        found |= {text: name for call in _calls(file) for text in _literals(call)}
    return found | {text: f"pages/{page.path}.py" for page in discover() for text in (page.title, page.purpose)}


def without_literal() -> list[str]:
    """Return the calls of `words` whose text no one can collect: `file:line`."""
    return [
        f"{file.relative_to(DASHBOARD)}:{call.lineno}: {ast.unparse(call)}"
        for file in sorted(DASHBOARD.rglob("*.py"))
        for call in _calls(file)
        if not list(_literals(call)) and not _is_collected_elsewhere(call.args[0])
    ]


def schema_docs() -> set[str]:
    """Return what the schema says of its tables and columns."""
    docs = {doc for table in TABLES.values() for doc in (table.doc, *(column.doc for column in table.columns))}
    return docs - {""}


def _calls(file: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args and _is_words(node):
            yield node


def _is_words(call: ast.Call) -> bool:
    """Whether it is `words(...)`, or `context.words("...")`; `desk.words(view)` gives words instead of saying some."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr == "words" and isinstance(call.args[0], ast.Constant)
    return isinstance(call.func, ast.Name) and call.func.id == "words"


def _literals(call: ast.Call) -> Iterator[str]:
    """Yield the texts of a call, both where one of two is said."""
    text = call.args[0]
    choices = [text.body, text.orelse] if isinstance(text, ast.IfExp) else [text]
    yield from (c.value for c in choices if isinstance(c, ast.Constant) and isinstance(c.value, str))


def _is_collected_elsewhere(text: ast.expr) -> bool:
    """Whether it is the title or purpose of a page, or what the schema says of a column."""
    return isinstance(text, ast.Attribute) and text.attr in {"title", "purpose", "doc"}
