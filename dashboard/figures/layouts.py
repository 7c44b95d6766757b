"""The same step in other precision layouts, and what its modules were measured to keep in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from ampdoctor.analysis.memory.layouts import COMPONENTS
from ampdoctor.analysis.speed import SETTINGS
from ampdoctor.analysis.wording import bytes_text
from ampdoctor.finding import Grade
from ampdoctor_dashboard.figures.amounts import unit_of
from ampdoctor_dashboard.figures.memory import COLORS, PALE, component_title, phase_title
from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.theme import CATEGORY, GREEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampdoctor.analysis.memory.layouts import Layout
    from ampdoctor.trace.schema import PaceRow
    from ampdoctor_dashboard.words import Words


def layout_title(name: str, words: Words) -> str:
    """Return what a layout is called; a name that is none of the four says what it is."""
    return {
        "fp32": "FP32",
        "amp-fp16": words("autocast FP16"),
        "amp-bf16": words("autocast BF16"),
        "pure-bf16": words("pure BF16"),
        "pure-fp16": words("pure FP16"),
        "mixed": words("mixed weights"),
    }.get(name, name)


def layout_bars(by_phase: Mapping[str, Sequence[Layout]], style: Style, *, keep: str) -> go.Figure:
    """Return each moment of the step in each layout, component on component; the run's own is marked."""
    words = style.words
    moments = [(phase, layout) for phase, layouts in by_phase.items() for layout in layouts]
    unit, size = unit_of(max((layout.peak_bytes for _, layout in moments), default=0.0))
    own = words("run")
    places = [
        [plain(phase_title(phase, words)) for phase, _ in moments],
        [plain(f"{layout_title(x.name, words)}{f' ({own})' if x.own else ''}") for _, x in moments],
    ]
    figure = go.Figure()
    for component in COMPONENTS:
        sizes = [layout.components[component] for _, layout in moments]
        if not any(s.bytes for s in sizes):
            continue
        name = plain(component_title(component, words))
        figure.add_bar(
            y=places, x=[s.bytes / size for s in sizes], orientation="h", name=name,
            marker={"color": COLORS.get(component, PALE), "line": {"width": 0}},
            customdata=[[bytes_text(s.bytes), _grade(s.grade, words)] for s in sizes],
            hovertemplate=f"%{{y}}<br>{name}: %{{customdata[0]}} (%{{customdata[1]}})<extra></extra>",
        )  # fmt: skip
    dressed(figure, style, height=100 + 24 * len(moments), keep=keep)
    figure.update_layout(barmode="stack", bargap=0.2, showlegend=False)
    figure.update_xaxes(title_text=words("memory, run observed, others estimated [{unit}]", unit=unit))
    return figure.update_yaxes(title_text=words("moment of the step, and layout"), autorange="reversed")


def _grade(grade: Grade, words: Words) -> str:
    return {Grade.OBSERVED: words("observed"), Grade.ESTIMATED: words("estimated"), Grade.MEASURED: words("measured")}[
        grade
    ]


def kept_bars(paces: Sequence[PaceRow], style: Style, *, keep: str) -> go.Figure:
    """Return what the modules keep for the backward pass in each precision, executed again: measured."""
    words = style.words
    measured = [row for row in paces if row.kept_bytes is not None]
    if not measured:
        return nothing(style, words("the step was not executed again in other precisions"), not_paced(paces, words))
    unit, size = unit_of(max(float(row.kept_bytes or 0) for row in measured))
    titles = [setting_title(row, words) for row in measured]
    figure = go.Figure(
        go.Bar(
            x=titles, y=[(row.kept_bytes or 0) / size for row in measured], width=0.5,
            text=[bytes_text(row.kept_bytes or 0) for row in measured], textposition="outside", cliponaxis=False,
            marker={"color": [CATEGORY.get(row.setting, GREEN) for row in measured]},
            hovertemplate="%{x}: %{text}<extra></extra>",
        )
    )  # fmt: skip
    dressed(figure, style, height=400, keep=keep)
    figure.update_yaxes(title_text=words("kept for the backward pass, measured [{unit}]", unit=unit))
    return figure.update_xaxes(title_text=words("precision of forward and backward"), type="category")


def setting_title(row: PaceRow, words: Words) -> str:
    """Return the name of a setting, marked where the run itself is in it."""
    title = {"bf16": words("BF16 autocast"), "fp16": words("FP16 autocast")}.get(row.setting)
    own = words("run")
    return plain(f"{title or SETTINGS.get(row.setting, row.setting)}{f' ({own})' if row.own else ''}")


def not_paced(paces: Sequence[PaceRow], words: Words) -> str:
    """Return what would fill a figure of other precisions: why it was declined, or how to ask for it."""
    declined = next((row.declined for row in paces if row.declined), None)
    if declined is not None:
        return words("it was asked for, and declined: {why}", why=declined)
    return words("record with `ampdoctor run --prove`")
