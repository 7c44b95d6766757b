"""The small charts of a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from ampdoctor_dashboard.data.recorded import recorded_behind
from ampdoctor_dashboard.figures.sparkline import HEIGHT, Sparkline, sparkline
from ampdoctor_dashboard.widgets.prose import cut

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.finding import Finding
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.figures.style import Style
    from ampdoctor_dashboard.words import Words


def evidence_charts(opened: OpenedRun, finding: Finding, style: Style) -> list[Component]:
    """Return charts of what was recorded behind a finding; none where it is about nothing that goes over steps."""
    words, where = style.words, finding.location
    charts = []
    for own in recorded_behind(opened, finding):
        title = _title(own.what, words)
        title = f"{cut(own.site, 30)}: {title}" if own.site else title
        share = own.what.endswith("_share")
        data = Sparkline(title, own.step, own.value, where.first_step, where.last_step, share)
        label = words("{what}, over the steps; {count} points", what=title, count=len(own.step))
        charts.append(_chart(data, style, label))
    return [html.Div(charts, className="sparklines")] if charts else []


def _chart(data: Sparkline, style: Style, label: str) -> Component:
    graph = dcc.Graph(
        figure=sparkline(data, style), config={"displayModeBar": False, "responsive": True},
        style={"height": f"{HEIGHT}px"},
    )  # fmt: skip
    named: Any = {"aria-label": label}
    return html.Div(graph, role="figure", className="sparkline", **named)


def _title(what: str, words: Words) -> str:
    return {
        "nonfinite_share": words("NaN or infinite [%], observed"),
        "zero_share": words("zero [%], observed"),
        "absmax": words("largest magnitude, observed"),
        "loss": words("loss, observed"),
        "loss_scale": words("loss scale, observed"),
        "grad_norm": words("gradient norm, observed"),
        "lr": words("learning rate, observed"),
        "wall_ms": words("step time [ms], observed"),
        "held_graphs": words("earlier steps whose graph is alive, observed"),
        "allocated_bytes": words("CUDA memory [bytes], observed"),
        "peak_bytes": words("peak CUDA memory [bytes], observed"),
    }[what]
