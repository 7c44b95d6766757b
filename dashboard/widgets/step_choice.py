"""The choice of one of the steps of which there is something to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dash.development.base_component import Component

    from ampdoctor_dashboard.words import Words

OFFERED = 1000
"""Steps that are offered, the last ones: more can't be chosen from by hand."""


def step_choice(component_id: str, words: Words, *, chosen: str | None = None) -> Component:
    """Return the control; a callback gives it its steps."""
    return dmc.Select(
        id=component_id, data=[], value=chosen, searchable=True, clearable=True, allowDeselect=False, size="xs", w=190,
        placeholder=words("step: chosen by itself"), nothingFoundMessage=words("nothing was recorded of that step"),
        **{"aria-label": words("step")},
    )  # fmt: skip


def instead(asked: int | None, shown: int | None, words: Words) -> list[Component]:
    """Return the notice that another step is shown than the one asked for; nothing where it is that one."""
    if asked is None or shown is None or asked == shown:
        return []
    said = words("Step {asked} was not examined; shown is step {step}, the nearest that was.", asked=asked, step=shown)
    return [dmc.Alert(said, color="gray", variant="light", p="xs", mb="sm")]


def step_options(steps: Sequence[int], words: Words, proven: Collection[int] = ()) -> list[dict[str, Any]]:
    """Return the steps to choose from, the last first; `proven` are those that a twin has looked at."""
    said = {True: words("step {step}, with a twin"), False: words("step {step}")}
    return [
        {"value": str(s), "label": said[s in proven].format(step=s)} for s in sorted(set(steps), reverse=True)[:OFFERED]
    ]
