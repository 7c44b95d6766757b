"""The AMP calls of a step: as they were made, beside the right order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from ampdoctor_dashboard.data import call_order
from ampdoctor_dashboard.widgets.frames import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from ampdoctor_dashboard.data.call_order import Made, Wanted
    from ampdoctor_dashboard.words import Words


def order_table(made: Sequence[Made], wanted: Sequence[Wanted], words: Words) -> Component:
    """Return the calls as they were made beside those that a step of this kind is made of."""
    recorded = html.Ol([_made(call, words) for call in made], className="calls") if made else note(
        words("No call was recorded on this step: it may not be over, or the training calls no optimizer.")
    )  # fmt: skip
    right = html.Ol([_wanted(call, words) for call in wanted], className="calls")
    return html.Div(
        [
            html.Div([html.H3(words("the right order")), right]),
            html.Div([html.H3(words("recorded on this step")), recorded]),
        ],
        className="orders",
    )


def _made(call: Made, words: Words) -> Component:
    parts: list[Any] = [html.Code(_spelled(call.call))]
    if call.times > 1:
        parts.append(html.Span(f"\u00d7 {call.times}", className="times"))
    if call.target:
        parts.append(html.Span(call.target[:60], className="faint small target"))
    if call.where:
        parts.append(html.Span(call.where, className="faint small where"))
    if call.wrong:
        parts.append(html.Div(["✕ ", _reason(call.wrong, words)], className="misplaced"))
    return html.Li(parts, className="call-bad" if call.wrong else "")


def _wanted(call: Wanted, words: Words) -> Component:
    missing = [] if call.made else [html.Div(["✕ ", words("not made on this step")], className="misplaced")]
    return html.Li([html.Code(_spelled(call.call)), *missing], className="" if call.made else "call-bad")


def _spelled(call: str) -> str:
    """Return a call as it is written in code."""
    return {
        "zero_grad": "optimizer.zero_grad()", "scale": "scaler.scale(loss)", "backward": "backward()",
        "unscale": "scaler.unscale_(optimizer)", "clip_norm": "clip_grad_norm_()", "clip_value": "clip_grad_value_()",
        "scaler_step": "scaler.step(optimizer)", "optimizer_step": "optimizer.step()", "update": "scaler.update()",
        "scheduler_step": "scheduler.step()",
    }.get(call, call)  # fmt: skip


def _reason(wrong: str, words: Words) -> str:
    return {
        call_order.CLIP_SCALED: words("clips gradients that still carry the loss scale: unscale_ belongs before it"),
        call_order.UNSCALED: words("this loss was not scaled, and scaler.step divides its gradients all the same"),
        call_order.BYPASSED: words("steps with scaled gradients: it should be scaler.step(optimizer)"),
        call_order.TWICE: words("steps a second time with the same gradients"),
        call_order.EARLY_UNSCALE: words("a backward pass follows, whose gradients are not unscaled"),
        call_order.UNSCALED_TWICE: words("divides by the scale a second time"),
        call_order.EARLY_UPDATE: words("another optimizer is still to be stepped at the old scale"),
        call_order.LOST_ZERO: words("throws away the gradients before they are used"),
        call_order.SKIPPED_SCHEDULE: words("moves the schedule on, although the step was skipped"),
    }.get(wrong, wrong)
