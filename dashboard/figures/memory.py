"""Where the memory of a step went: as a treemap, over the moments, by module, and in other layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from ampdoctor.analysis.wording import bytes_text
from ampdoctor.formats import format_of_dtype, title_of_dtype
from ampdoctor_dashboard.figures.amounts import LONGEST_TOLD, short, unit_of
from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.theme import BLUE, CATEGORY, GREEN, ORANGE, PINK, SKY, VERMILION, YELLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ampdoctor_dashboard.words import Words

GREY, PALE = "#7d8590", "#b8bec6"

COLORS = {
    "weights": BLUE, "master_weights": SKY, "gradients": VERMILION, "optimizer": ORANGE, "activations": GREEN,
    "autocast_cache": PINK, "buffers": YELLOW, "temporary": GREY, "other": PALE,
}  # fmt: skip
"""The colour of each component, everywhere the same."""

MODULES_SHOWN = 24
"""Modules that have a bar of their own."""


@dataclass(frozen=True)
class Stack:
    """Bars that stand on one another: a component's bytes at each place.

    Attributes:
        component: one of COLORS.
        bytes: one for each place.
    """

    component: str
    bytes: tuple[float, ...]


def component_title(component: str, words: Words) -> str:
    """Return what a component is called."""
    return {
        "weights": words("weights"),
        "master_weights": words("master copies of weights"),
        "gradients": words("gradients"),
        "optimizer": words("optimizer state"),
        "activations": words("activations kept for backward"),
        "autocast_cache": words("half copies of weights"),
        "buffers": words("buffers"),
        "temporary": words("temporaries"),
        "other": words("there before the step"),
    }.get(component, component)


def phase_title(phase: str, words: Words) -> str:
    """Return what a moment of a step is called."""
    return {
        "forward": words("after forward"),
        "backward": words("after backward"),
        "step": words("after step"),
        "peak": words("peak"),
    }.get(phase, phase)


def stacked(places: Sequence[str], stacks: Sequence[Stack], style: Style, *, axis: str, keep: str) -> go.Figure:
    """Return what lived at each of several places, component on component; observed."""
    words = style.words
    unit, size = unit_of(max((sum(column) for column in zip(*(s.bytes for s in stacks), strict=True)), default=0.0))
    figure = go.Figure([_bar([plain(p) for p in places], stack, size, style) for stack in stacks])
    dressed(figure, style, height=380, keep=keep)
    figure.update_layout(barmode="stack", bargap=0.35, showlegend=True)
    figure.update_layout(legend={"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1.0, "yanchor": "top"})
    figure.update_yaxes(title_text=words("memory, observed [{unit}]", unit=unit))
    return figure.update_xaxes(title_text=axis, type="category")


def _bar(places: Sequence[object], stack: Stack, size: int, style: Style) -> go.Bar:
    name = component_title(stack.component, style.words)
    return go.Bar(
        x=places,
        y=[value / size for value in stack.bytes],
        customdata=[bytes_text(value) for value in stack.bytes],
        name=plain(name),
        marker={"color": COLORS.get(stack.component, PALE), "line": {"width": 0}},
        hovertemplate=f"%{{x}}<br>{plain(name)}: %{{customdata}}<extra></extra>",
    )


@dataclass(frozen=True)
class Area:
    """What lived on each of the steps whose memory was recorded, and what the allocator said on every step.

    Attributes:
        steps: the steps with a ledger.
        stacks: components, one amount a step.
        lines: what CUDA's allocator said: name, steps, bytes.
    """

    steps: tuple[int, ...]
    stacks: tuple[Stack, ...]
    lines: tuple[tuple[str, Sequence[float], Sequence[float]], ...] = ()


def over_steps(area: Area, style: Style, *, keep: str) -> go.Figure:
    """Return the components over the steps as areas, and the allocator's own figures as lines."""
    words = style.words
    if len(area.steps) < 2 and not area.lines:
        why = words("the memory of one step only was recorded, and no CUDA allocator was asked on the others")
        return nothing(style, why, words("a longer run, or one on a GPU, has more"), height=140)
    tops = [sum(column) for column in zip(*(s.bytes for s in area.stacks), strict=True)]
    unit, size = unit_of(max([*tops, *(max(y, default=0.0) for _, _, y in area.lines)], default=0.0))
    figure = go.Figure()
    for stack in area.stacks if len(area.steps) > 1 else ():
        color, name = COLORS.get(stack.component, PALE), plain(component_title(stack.component, words))
        figure.add_scatter(
            x=area.steps, y=[value / size for value in stack.bytes], name=name, stackgroup="lived", mode="lines",
            line={"width": 0.5, "color": color}, fillcolor=color, customdata=[bytes_text(v) for v in stack.bytes],
            hovertemplate=f"{name}: %{{customdata}}<extra></extra>",
        )  # fmt: skip
    for number, (name, x, y) in enumerate(area.lines):
        line = {"color": style.theme.ink, "width": 1.5, "dash": ("solid", "dot")[number % 2]}
        figure.add_scatter(x=x, y=[value / size for value in y], name=plain(name), mode="lines", line=line)
    dressed(figure, style, height=340, keep=keep)
    figure.update_layout(hovermode="x unified")
    figure.update_yaxes(title_text=words("memory, observed [{unit}]", unit=unit), rangemode="tozero")
    return figure.update_xaxes(title_text=words("step"))


def by_module(kept: Mapping[str | None, Mapping[str, int]], style: Style, *, keep: str) -> go.Figure:
    """Return what each module keeps for the backward pass, most first, by dtype; observed."""
    words = style.words
    if not kept:
        why = words("no activation was kept for the backward pass")
        return nothing(style, why, words("a step with a forward pass under autograd has some"))
    modules = list(kept.items())
    shown, rest = modules[:MODULES_SHOWN], modules[MODULES_SHOWN:]
    rows = [(_module(name, words), dict(sizes)) for name, sizes in shown]
    if rest:
        rows.append((words("and {count} more modules", count=len(rest)), _summed(sizes for _, sizes in rest)))
    unit, size = unit_of(max(sum(sizes.values()) for _, sizes in rows))
    figure = go.Figure()
    places = [*range(len(rows))]
    for dtype in _dtypes([sizes for _, sizes in rows]):
        name = plain(title_of_dtype(dtype) if format_of_dtype(dtype) else dtype or words("other"))
        bytes_ = [sizes.get(dtype, 0) for _, sizes in rows]
        figure.add_bar(
            y=places, x=[value / size for value in bytes_], orientation="h", name=name,
            marker={"color": dtype_color(dtype), "line": {"width": 0}},
            customdata=[[plain(n[:LONGEST_TOLD]), bytes_text(v)] for (n, _), v in zip(rows, bytes_, strict=True)],
            hovertemplate=f"%{{customdata[0]}}<br>{name}: %{{customdata[1]}}<extra></extra>",
        )  # fmt: skip
    dressed(figure, style, height=110 + 22 * len(rows), keep=keep)
    figure.update_layout(barmode="stack", bargap=0.25, showlegend=True)
    figure.update_yaxes(autorange="reversed", tickvals=places, ticktext=[short(name) for name, _ in rows])
    return figure.update_xaxes(title_text=words("kept for the backward pass, observed [{unit}]", unit=unit))


def dtype_color(dtype: str) -> str:
    """Return the colour of a dtype: that of its number format, grey for what is none."""
    known = format_of_dtype(dtype)
    return GREY if known is None else CATEGORY.get(known.name, GREY)


def _dtypes(rows: Sequence[Mapping[str, int]]) -> list[str]:
    sizes = _summed(rows)
    return sorted(sizes, key=lambda dtype: -sizes[dtype])


def _summed(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for row in rows:
        for dtype, held in row.items():
            sizes[dtype] = sizes.get(dtype, 0) + held
    return sizes


def _module(name: str | None, words: Words) -> str:
    return words("outside of modules") if name is None else name or words("the model itself")
