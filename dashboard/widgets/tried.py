"""What was tried beside the run on one step: the gradient in each other setting, beside that of FP32."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from dash import html

from ampdoctor.analysis.twins.measured import FP32, RUN, cosine_text
from ampdoctor.analysis.wording import number, percent
from ampdoctor.finding import Grade
from ampdoctor_dashboard.widgets.badges import BAD, GOOD, badge, grade_badge
from ampdoctor_dashboard.widgets.prose import cut

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.analysis.twins.measured import MeasuredStep, Measurement
    from ampdoctor_dashboard.words import Words


NONE = "\N{EN DASH}"
"""Stands where nothing was measured."""


def tried_table(step: MeasuredStep, words: Words) -> Component:
    """Return what each setting did to the gradient of one step."""
    title = words("Tried beside the run, on step {step}", step=step.step)
    head = [
        _head(words("setting"), words("How the same step was executed once more, beside the run's own.")),
        _head(words("flushed [%]"), words("Share of the gradient's elements that are zero, and are not in FP32.")),
        _head(words("cosine"), words("Direction of the gradient beside that of FP32; 1 is the same.")),
        _head(words("norm ratio"), words("Length of the gradient over that of FP32; 1 is the same.")),
        _head(words("loss"), words("Value of the loss in that setting.")),
    ]
    shown = sorted(step.settings.values(), key=lambda m: (m.name != RUN, m.name == FP32, -(m.gradient.cosine or -1.0)))
    best = max((m.gradient.cosine or -1.0 for m in step.others), default=None)
    rows = [_row(m, words, best=m in step.others and m.gradient.cosine == best) for m in shown]
    table = html.Table([html.Thead(html.Tr(head)), html.Tbody(rows)], className="figures")
    caption = html.Div([html.H4(title), grade_badge(Grade.MEASURED, words)], className="part-head")
    return html.Div([caption, html.Div(table, className="figures-scroll")], className="tried-table")


def setting_title(name: str, words: Words) -> str:
    """Return what to call a counterfactual: `fp16@2^10+fp32:decoder` is FP16 at loss scale 2^10, decoder in FP32."""
    if name == RUN:
        return words("as it ran")
    base, *kept = name.split("+fp32:")
    number_format, _, scale = base.partition("@")
    title = number_format.upper()
    if scale:
        title = words("{format} at loss scale {scale}", format=title, scale=scale)
    if kept:
        title = words("{setting}, {modules} in FP32", setting=title, modules=", ".join(cut(k, 32) for k in kept))
    return title


def _head(text: str, why: str) -> Component:
    return html.Th(text, title=why, scope="col")


def _row(own: Measurement, words: Words, *, best: bool) -> Component:
    gradient = own.gradient
    name = [setting_title(own.name, words)]
    marks = [badge(words("nearest to FP32"), GOOD)] if best else []
    if own.name == FP32:
        marks = [badge(words("what the others are compared with"))]
    if not own.finite:
        marks = [badge(words("not finite"), BAD, words("The gradient holds a NaN or an infinity."))]
    cosine = "" if gradient.cosine is None else cosine_text(gradient.cosine)
    ratio = "" if gradient.norm_ratio is None else number(gradient.norm_ratio)
    return html.Tr(
        [
            html.Th(html.Span([*name, *marks], className="figures-named"), scope="row"),
            html.Td(_bar(own.flushed, percent(own.flushed)) if own.finite else NONE),
            html.Td(cosine or NONE, className="figure"),
            html.Td(ratio or NONE, className="figure"),
            html.Td(_loss(own.loss), className="figure"),
        ],
        className="figures-own" if own.name == RUN else "",
    )


def _loss(value: float | None) -> str:
    if value is None:
        return NONE
    return "NaN" if isnan(value) else number(value)


def _bar(share: float, text: str) -> Component:
    width = f"{100.0 * min(max(share, 0.0), 1.0):.1f}%"
    return html.Span(
        [html.Span(html.Span(style={"width": width}), className="share-bar"), html.Span(text, className="figure")],
        className="share-barred",
    )
