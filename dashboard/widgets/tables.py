"""Tables that sort, filter and scroll, whatever their length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_ag_grid as dag

from ampdoctor.trace.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from ampdoctor_dashboard.words import Words


COLUMN = {"sortable": True, "filter": True, "resizable": True, "wrapHeaderText": True, "autoHeaderHeight": True}
"""What every column can do."""


def column(field: str, title: str, *, explain: str = "", **more: Any) -> dict[str, Any]:
    """Return a column of a table; `explain` is said when one points at its head."""
    told = {"headerTooltip": explain} if explain else {}
    return {"field": field, "headerName": title, **told, **more}


def recorded(table: str, name: str, title: str, words: Words, **more: Any) -> dict[str, Any]:
    """Return a column that shows one of the trace, explained by the schema."""
    doc = next(c for c in TABLES[table].columns if c.name == name)
    unit = f" [{doc.unit}]" if doc.unit else ""
    return column(name, title + unit, explain=words(doc.doc), **more)


def grid(
    component_id: Any,
    columns: Sequence[dict[str, Any]],
    rows: Sequence[dict[str, Any]],
    *,
    height: int = 420,
    **more: Any,
) -> Component:
    """Return a table. Cells are text and numbers, never markup."""
    options = {
        "animateRows": False, "suppressCellFocus": False, "tooltipShowDelay": 200, "enableCellTextSelection": True,
        "ensureDomOrder": True, **more.pop("options", {}),
    }  # fmt: skip
    return dag.AgGrid(
        id=component_id,
        columnDefs=list(columns),
        rowData=list(rows),
        defaultColDef={
            "sortable": True,
            "filter": True,
            "resizable": True,
            "wrapHeaderText": True,
            "autoHeaderHeight": True,
        },
        dashGridOptions=options,
        columnSize=None if any("flex" in c for c in columns) else "responsiveSizeToFit",
        style={"height": f"{height}px", "width": "100%"},
        **more,
    )
