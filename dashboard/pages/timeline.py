"""The page Timeline: the vitals of a run on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
import numpy as np
from ampdoctor_dashboard.data import timeline as data
from ampdoctor_dashboard.figures.timeline import Line, Mark, Timeline, Vital, timeline
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.theme import ORANGE, PINK, VERMILION
from ampdoctor_dashboard.widgets.frames import card, chart, page_head
from dash import Dash, Input, Output, State, html, no_update

from ampdoctor.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.words import Words
    from dash.development.base_component import Component
    from numpy.typing import NDArray

_STEP, _TIME = "step", "time"

FEW = 40
"""Points of a line that are also shown as dots."""

WAIT_S = 0.2
"""How long the figure waits for the findings that it draws as bands; they come with the next look otherwise."""


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    axis = dmc.SegmentedControl(
        id="timeline-axis",
        data=[{"value": _STEP, "label": words("over steps")}, {"value": _TIME, "label": words("over time")}],
        value=context.view.axis or _STEP,
        size="xs",
    )
    explain = words("Click a step to choose it; every page then shows that step, and the address holds it.")
    return html.Div(
        [
            page_head(words(PAGE.title), words(PAGE.purpose), axis),
            card(
                words("Vitals"),
                chart("timeline-figure", height=900, label=words("loss, loss scale, gradient and pace over the steps")),
                explain=explain,
            ),
        ]
    )


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""

    @app.callback(
        Output("timeline-figure", "figure"),
        Output("timeline-figure", "style"),
        Input("version", "data"),
        Input("view", "data"),
        Input("theme", "data"),
    )
    def draw(_: object, values: dict[str, str] | None, theme: str | None) -> Any:
        figure = desk.drawn(values, theme, lambda context, style: timeline(_timeline(context), style))
        return figure, {"height": f"{figure.layout.height}px"}

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("timeline-axis", "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose_axis(axis: str, values: dict[str, str] | None) -> Any:
        return no_update if (values or {}).get("axis", _STEP) == axis else chosen(axis=axis)

    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input("timeline-figure", "clickData"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose_step(clicked: dict[str, Any] | None, values: dict[str, str] | None) -> Any:
        if not clicked:
            return no_update
        run = desk.context(values).run
        x = float(clicked["points"][0]["x"])
        places = run.steps.elapsed_s if (values or {}).get("axis") == _TIME else run.steps.step
        return chosen(step=run.steps.step[int(np.argmin(np.abs(places - x)))])


def _timeline(context: Context) -> Timeline:
    run, words = context.run, context.words
    if not len(run.steps):
        return Timeline(())
    over_time = context.view.axis == _TIME
    steps = run.steps
    places = dict(zip(steps.step.tolist(), steps.elapsed_s.tolist(), strict=True)) if over_time else {}

    def at(step: NDArray[Any]) -> NDArray[np.float64]:
        return np.array([places.get(int(s), np.nan) for s in step]) if over_time else step.astype(float)

    step = context.view.step_number
    return Timeline(
        _vitals(run, words, at),
        _marks(run, words, at),
        _bands(context, at),
        words("seconds since the first step [s]") if over_time else words("step"),
        float(at(np.array([step]))[0]) if step is not None else None,
        keep=f"{run.id}-{run.rank}-{context.view.axis}",
    )


def _vitals(run: OpenedRun, words: Words, at: Callable[[NDArray[Any]], NDArray[np.float64]]) -> tuple[Vital, ...]:
    column = run.steps.column

    def line(name: str, points: tuple[NDArray[Any], NDArray[np.float64]], *, dots: bool = False) -> Line:
        return Line(name, at(points[0]), points[1], dots or len(points[0]) < FEW)

    def own(name: str, values: NDArray[np.float64]) -> Line:
        return Line(name, at(run.steps.step), values)

    norm = words("gradient norm, unscaled")
    return (
        Vital(
            "loss",
            words("loss"),
            (
                own(words("loss of the run"), column("loss")),
                line(words("loss of the FP32 twin (measured)"), data.loss_in_fp32(run), dots=True),
            ),
            words("no backward() from a scalar was seen"),
        ),
        Vital(
            "scale",
            words("loss scale"),
            (own(words("loss scale"), column("loss_scale")),),
            words("no enabled GradScaler: nothing scales the loss"),
            log2=True,
        ),
        Vital(
            "norm",
            norm,
            (own(norm, data.unscaled_norm(run)),),
            words("the training does not call clip_grad_norm_, which returns it"),
            log=True,
        ),
        Vital(
            "zeros",
            words("share of the weight gradients' elements [%]"),
            (
                line(words("zero (observed, of any cause)"), data.share_by_step(run, "weight_grad", "zeros")),
                line(words("subnormal (observed)"), data.share_by_step(run, "weight_grad", "subnormal")),
                line(words("flushed (measured)"), data.measured_flushed(run), dots=True),
            ),
            words("no weight gradient was recorded: no step was examined yet"),
            share=True,
        ),
        Vital(
            "lr",
            words("learning rate"),
            (own(words("learning rate"), column("lr")),),
            words("no optimizer with a learning rate stepped"),
        ),
        Vital(
            "wall",
            words("step time [ms]"),
            (own(words("step time"), column("wall_ms")),),
            words("no step has ended yet"),
        ),
    )


def _marks(run: OpenedRun, words: Words, at: Callable[[NDArray[Any]], NDArray[np.float64]]) -> tuple[Mark, ...]:
    kinds = (
        (words("step skipped"), run.steps.skipped, VERMILION),
        (words("scale backed off"), data.scaler_steps(run, "backoff"), ORANGE),
        (words("scale grew"), data.scaler_steps(run, "growth"), PINK),
    )
    return tuple(Mark(name, at(steps), color) for name, steps, color in kinds)


def _bands(context: Context, at: Callable[[NDArray[Any]], NDArray[np.float64]]) -> tuple[Mark, ...]:
    judged = context.desk.judge.ask(context.run, WAIT_S)
    found = judged.diagnosis.findings if judged and judged.diagnosis else ()
    bands = []
    for finding in found:
        first, last = finding.location.first_step, finding.location.last_step
        if finding.severity is Severity.NOTE or first is None:
            continue
        ends = at(np.array([first, context.run.steps.step[-1] if last is None else last]))
        color = VERMILION if finding.severity is Severity.ERROR else ORANGE
        bands.append(Mark(finding.name, ends[:1], color, float(ends[1])))
    return tuple(bands)


PAGE = Page(
    path="timeline",
    title="Timeline",
    purpose="When did it go wrong? Loss, loss scale, gradients and pace on one axis.",
    icon="timeline",
    order=20,
    layout=layout,
    register=register,
)
