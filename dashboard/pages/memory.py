"""The page Memory and speed: where a step's memory and time went, and what other precisions would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update

from ampdoctor.analysis.memory.advice import advice
from ampdoctor.analysis.memory.layouts import layouts
from ampdoctor.analysis.memory.ledgers import PHASES, ledgers
from ampdoctor.analysis.memory.saved import saved_sentence
from ampdoctor.analysis.wording import bytes_text, percent
from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.data.memory import Chosen, chosen_ledger, chosen_speed, costs
from ampdoctor_dashboard.figures import costs as figures
from ampdoctor_dashboard.figures.memory import phase_title
from ampdoctor_dashboard.pages.base import Context, Desk, Page, chosen
from ampdoctor_dashboard.widgets.cost_numbers import memory_numbers, speed_numbers
from ampdoctor_dashboard.widgets.costs import advice_list, numbers
from ampdoctor_dashboard.widgets.frames import card, chart, note, page_head
from ampdoctor_dashboard.widgets.prose import prose

if TYPE_CHECKING:
    from collections.abc import Callable

    import plotly.graph_objects as go
    from dash.development.base_component import Component

    from ampdoctor.trace.run import Run
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words

FIGURES: dict[str, Callable[[OpenedRun, int | None, str, Style], go.Figure]] = {
    "memory-treemap": figures.boxes,
    "memory-moments": figures.moments,
    "memory-layouts": figures.other_layouts,
    "memory-kept": figures.kept_in_each,
    "memory-modules": figures.modules,
    "memory-steps": figures.steps,
    "memory-operations": figures.by_operation,
    "memory-dtypes": figures.by_dtype,
    "memory-time-modules": figures.by_place,
    "memory-paces": figures.paces,
    "memory-gpu": figures.gpu,
}
"""The figures of the page, by the place where they stand."""


def layout(context: Context) -> Component:
    """Return the page."""
    words = context.words
    run = costs(context.run)
    found = chosen_ledger(run, context.view.step_number, context.view.phase)
    return html.Div(
        [
            page_head(words(PAGE.title), words(PAGE.purpose), *_choices(context, found)),
            html.Div(id="memory-numbers"),
            *_memory(words),
            *_speed(words),
            card(
                words("GPU telemetry"),
                chart("memory-gpu", height=240, label=words("use, clock, power and memory of the GPUs over time")),
                explain=words(
                    "What the driver (NVML) said of the GPUs that the training can see, about once a second."
                ),
            ),
        ],
        className="memory-page",
    )


def _choices(context: Context, found: Chosen | None) -> list[Component]:
    words = context.words
    steps = ledgers(costs(context.run))
    held = found.ledger.phases if found else []
    data = [{"value": p, "label": phase_title(p, words), "disabled": bool(held) and p not in held} for p in PHASES]
    options = [{"value": str(step), "label": words("step {step}", step=step)} for step in steps]
    return [
        dmc.Select(
            id="memory-step", data=options, value=str(found.ledger.step) if found else None, size="xs", w=130,
            allowDeselect=False, placeholder=words("no step"),
            **{"aria-label": words("step whose memory was recorded")},
        ),
        dmc.SegmentedControl(
            id="memory-phase", data=data, value=found.phase if found else PHASES[-1], size="xs",
            disabled=found is None, **{"aria-label": words("moment of the step")},
        ),
    ]  # fmt: skip


def _memory(words: Words) -> list[Component]:
    boxes = words("One box per component, in it what it is made of: kind, module, dtype. A click opens a box.")
    bars = words("All that lived at each named moment of the step, in the colours of the boxes.")
    saved = words("The same step worked out in other precision layouts, moment by moment.")
    kept = words("One forward and backward executed again in each precision (--prove), and what its modules kept.")
    return [
        html.Div(
            [
                card(words("Components"),
                     [html.Div(id="memory-said"), _chart("memory-treemap", 380, words("components"))],
                     explain=boxes),
                card(words("Over the moments"), _chart("memory-moments", 380, words("components at each moment")),
                     explain=bars),
            ],
            className="memory-wide",
        ),
        card(words("What mixed precision saved"), [
            html.Div(id="memory-saved"),
            html.Div([_chart("memory-layouts", 400, words("the step in other layouts")),
                      _chart("memory-kept", 400, words("kept in each precision"))], className="memory-wide"),
        ], explain=f"{saved} {kept}"),
        html.Div(
            [
                card(words("Kept for the backward pass, by module"),
                     _chart("memory-modules", 320, words("activations by module and dtype")),
                     explain=words("What autograd holds on to after the forward pass, by the module that made it.")),
                card(words("What would take less"), html.Div(id="memory-advice"),
                     explain=words("Changes worth at least 2 % of the peak, the largest saving first.")),
            ],
            className="memory-wide",
        ),
        card(words("Over the steps"), _chart("memory-steps", 320, words("memory over the steps")),
             explain=words("The chosen moment on every step with a ledger, and CUDA's allocator on every step.")),
    ]  # fmt: skip


def _speed(words: Words) -> list[Component]:
    where = words("Time of the operations of a timed step: on the device where it is one, else on the host.")
    pace = words(
        "Forward and backward of one step executed several times in each precision, in turns; the line is from the "
        "shortest round to the longest."
    )
    return [
        card(
            words("Where the time goes"),
            [
                html.Div(id="memory-times"),
                html.Div(
                    [
                        _titled("memory-operations", words("by operation")),
                        _titled("memory-time-modules", words("by module")),
                    ],
                    className="memory-halves",
                ),
            ],
            explain=where,
        ),
        html.Div(
            [
                card(
                    words("By dtype of the result"),
                    _chart("memory-dtypes", 240, words("time by dtype of the result")),
                    explain=where,
                ),
                card(
                    words("Pace of other precisions"),
                    _chart("memory-paces", 240, words("duration in each precision")),
                    explain=pace,
                ),
            ],
            className="memory-halves",
        ),
    ]


def _titled(component_id: str, title: str) -> Component:
    return html.Div([html.H3(title), _chart(component_id, 320, title)])


def _chart(component_id: str, height: int, label: str) -> Component:
    return chart(component_id, height=height, label=label)


def register(app: Dash, desk: Desk) -> None:
    """Add the callbacks of the page."""
    for component_id, draw in FIGURES.items():
        _register_figure(app, desk, component_id, draw)
    places = ("numbers", "said", "saved", "advice", "times")

    @app.callback(
        *(Output(f"memory-{place}", "children") for place in places), Input("version", "data"), Input("view", "data")
    )
    def say(_: object, values: dict[str, str] | None) -> Any:
        try:
            return _said(desk.context(values))
        except AmpDoctorError as error:
            return [error.message, *[None] * (len(places) - 1)]

    for component_id, field in (("memory-step", "step"), ("memory-phase", "phase")):
        _register_choice(app, component_id, field)


def _register_figure(
    app: Dash, desk: Desk, component_id: str, draw: Callable[[OpenedRun, int | None, str, Style], go.Figure]
) -> None:
    @app.callback(
        Output(component_id, "figure"),
        Output(component_id, "style"),
        Input("version", "data"),
        Input("view", "data"),
        Input("theme", "data"),
    )
    def drawn(_: object, values: dict[str, str] | None, theme: str | None) -> Any:
        figure = desk.drawn(
            values, theme, lambda context, style: draw(context.run, context.view.step_number, context.view.phase, style)
        )
        return figure, {"height": f"{figure.layout.height}px"}


def _register_choice(app: Dash, component_id: str, field: str) -> None:
    @app.callback(
        Output("view", "data", allow_duplicate=True),
        Input(component_id, "value"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def choose(value: str | None, values: dict[str, str] | None) -> Any:
        return no_update if not value or (values or {}).get(field) == value else chosen(**{field: value})


def _said(context: Context) -> list[Any]:
    words, run = context.words, costs(context.run)
    found = chosen_ledger(run, context.view.step_number, context.view.phase)
    times = _times(context, run)
    speed = speed_numbers(chosen_speed(run, context.view.step_number), words)
    if found is None:
        why = note(words("There is advice where a step's memory was recorded."))
        return [numbers(speed, words), None, note(words("Nothing to compare with yet.")), why, times]
    ledger = found.ledger
    phase, size = phase_title(found.phase, words), bytes_text(ledger.total(found.phase))
    said = [words("Step {step}, {phase}: {size} on {device}.", step=ledger.step, phase=phase, size=size,
                  device=ledger.device)]  # fmt: skip
    if found.asked is not None:
        said.append(words("Step {step} was chosen; this is the nearest whose memory was recorded.", step=found.asked))
    figures_ = [*memory_numbers(found, words), *speed]
    return [
        numbers(figures_, words),
        note(" ".join(said)),
        note(prose(words, saved_sentence(layouts(run, ledger)))),
        advice_list(advice(run, ledger), words),
        times,
    ]


def _times(context: Context, run: Run) -> Component:
    words = context.words
    speed = chosen_speed(run, context.view.step_number)
    if speed is None:
        return note(figures.why_no_times(words))
    clock = words("on the device") if speed.on_device else words("on the host: no CUDA device was used")
    said = words("Step {step}: operations timed {clock}.", step=speed.step, clock=clock)
    odd = sum(row.misaligned for row in speed.misaligned)
    if odd:
        said += " " + words(
            "{calls} half products or convolutions have sizes that are no multiple of 8: {share} of the time.",
            calls=odd, share=percent(min(speed.share(speed.misaligned), 1.0)),
        )  # fmt: skip
    return note(said)


PAGE = Page(
    path="memory",
    title="Memory and speed",
    purpose="Where do memory and time go, and what has mixed precision saved?",
    icon="memory",
    order=70,
    layout=layout,
    register=register,
)
