"""The lines of the module tree, as buttons; assets/page-layers.js says which was pressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor_dashboard.data.tensors import Site
    from ampdoctor_dashboard.data.tree import Lines, Row
    from ampdoctor_dashboard.words import Words

LONGEST_TITLE = 300
HIDDEN: dict[str, Any] = {"aria-hidden": "true"}
DEEPEST = 12
"""Levels that are indented."""


def module_tree(lines: Lines, sites: list[Site], chosen: str, words: Words) -> list[Component]:
    """Return the lines; a module's folds and unfolds it, a site's chooses it."""
    return [_line(row, sites, chosen, words) for row in lines.rows]


def _line(row: Row, sites: list[Site], chosen: str, words: Words) -> Component:
    path = row.path[:LONGEST_TITLE]
    more: dict[str, Any] = {"title": path, "style": {"paddingLeft": f"{8 + 14 * min(row.depth, DEEPEST)}px"}}
    label = row.label[:LONGEST_TITLE] or words("the whole model")
    mark = html.Span("", className="layers-mark")
    if row.site is not None:
        key = sites[row.site].key
        more |= {"data-site": key, "aria-pressed": "true" if key == chosen else "false"}
    elif row.parent >= 0:
        mark = html.Span("▾" if row.unfolded else "▸", className="layers-mark", **HIDDEN)
        more |= {"data-module": row.path, "aria-expanded": "true" if row.unfolded else "false"}
    else:
        return html.Div([mark, html.Span(label)], className="layers-line layers-module", **more)
    kind = "layers-site" if row.site is not None else "layers-module"
    return html.Button([mark, html.Span(label)], className=f"layers-line {kind}", type="button", **more)
