"""Several runs on the same axes: a strip for each vital, a line for each run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor_dashboard.figures.timeline import Line, Timeline, Vital, timeline
from ampdoctor_dashboard.theme import SERIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import plotly.graph_objects as go

    from ampdoctor_dashboard.data.timeline import Points
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words

    Runs = Sequence[tuple[str, Mapping[str, Points]]]

DASHES = ("solid", "dash", "dot", "dashdot")
"""How the lines of the runs are dashed, so that they are told apart without their colours."""

FEW = 40
"""Points of a line that are also shown as dots."""


def compare(runs: Runs, style: Style, *, over_time: bool = False) -> go.Figure:
    """Return the vitals of runs laid over each other.

    Args:
        runs: what each is called, and the points of its vitals by their names.
        style: colours and language.
        over_time: the points are placed in seconds, not in steps.
    """
    words = style.words
    if not any(len(points["loss"][0]) for _, points in runs):
        return timeline(Timeline(()), style)
    title = words("seconds since the first step [s]") if over_time else words("step")
    keep = "~".join([*(name for name, _ in runs), str(over_time)])
    return timeline(Timeline(_vitals(runs, words), axis_title=title, keep=keep), style)


def _vitals(runs: Runs, words: Words) -> tuple[Vital, ...]:
    def strip(key: str, title: str, why_empty: str, **more: bool) -> Vital:
        lines = tuple(_line(name, points[key], number) for number, (name, points) in enumerate(runs))
        return Vital(key, title, lines, why_empty, **more)

    zeros = words("zero (observed, of any cause), share of the weight gradients' elements [%]")
    flushed = words("flushed (measured), share of the gradient's elements [%]")
    no_norm = words("the training does not call clip_grad_norm_, which returns it")
    no_gradient = words("no weight gradient was recorded: no step was examined yet")
    return (
        strip("loss", words("loss"), words("no backward() from a scalar was seen")),
        strip("scale", words("loss scale"), words("no enabled GradScaler: nothing scales the loss"), log2=True),
        strip("norm", words("gradient norm, unscaled"), no_norm, log=True),
        strip("zeros", zeros, no_gradient, share=True),
        strip("flushed", flushed, words("no twin step was executed: nothing was measured"), share=True),
        strip("wall", words("step time [ms]"), words("no step has ended yet"), log=True),
    )


def _line(name: str, points: Points, number: int) -> Line:
    color, dash = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)]
    return Line(name, *points, len(points[1]) < FEW, color, dash, group=f"run-{number}")
