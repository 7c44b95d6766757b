"""Links that lead to another page, and show there what is meant here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor_dashboard.view import View


def address(page: str, view: View, **changes: object) -> str:
    """Return the address of a page that shows `view` with these changes."""
    return f"/{page}{view.with_(**changes).query}"


def link(inside: Any, page: str, view: View, *, why: str, look: str = "link", **changes: object) -> Component:
    """Return a link to a page that shows `view` with these changes.

    Args:
        inside: what one presses.
        page: where it leads.
        view: what is shown here.
        why: what one will see there.
        look: its class.
        changes: what is shown otherwise there.
    """
    return dcc.Link(inside, href=address(page, view, **changes), title=why, className=look)
