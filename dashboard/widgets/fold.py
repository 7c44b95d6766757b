"""What is folded away under a line of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

if TYPE_CHECKING:
    from dash.development.base_component import Component


def fold(key: str, head: str, *inside: Any, unfolded: bool = False, look: str = "") -> Component:
    """Return a fold. As one leaves it, it stays when its place is drawn anew (assets/folds.js).

    Args:
        key: tells it from the others of the page.
        head: the line that is always there.
        inside: what is folded away.
        unfolded: it is unfolded at first.
        look: further classes.
    """
    named: Any = {"data-fold": key}
    return html.Details([html.Summary(head), *inside], open=unfolded, className=f"fold {look}".strip(), **named)
