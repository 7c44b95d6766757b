"""What the driver said of the GPUs, over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ampdoctor_dashboard.figures.amounts import short
from ampdoctor_dashboard.figures.style import Style, dressed, nothing, plain
from ampdoctor_dashboard.figures.thinning import drawable, thinned
from ampdoctor_dashboard.theme import SERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ampdoctor_dashboard.data.gpu import Telemetry
    from ampdoctor_dashboard.words import Words

ROW_HEIGHT = 120


@dataclass(frozen=True)
class _Strip:
    """One quantity: its axis, the column that is drawn, and the one that bounds it (dotted)."""

    title: str
    column: str
    bound: str = ""
    per: float = 1.0
    share: bool = False


def telemetry_figure(gpus: Sequence[Telemetry], why_none: str | None, style: Style, *, keep: str) -> go.Figure:
    """Return the GPUs' use, clock, power, temperature, memory and throttling below one another; observed.

    Args:
        gpus: what was said of each.
        why_none: why nothing was, as run.json says it; None where the training used no CUDA.
        style: how to draw.
        keep: what keeps the zoom.
    """
    words = style.words
    if not gpus:
        why = words("the training used no CUDA device") if why_none is None else words("no GPU was looked at")
        fill = words("a run on an NVIDIA GPU records it about once a second") if why_none is None else why_none
        return nothing(style, why, fill, height=140)
    strips = _strips(words)
    rows = len(strips) + 1
    figure = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.2 / rows)
    for row, strip in enumerate(strips, 1):
        _draw(figure, strip, gpus, row, style)
    _throttle(figure, gpus, rows, style)
    dressed(figure, style, height=rows * ROW_HEIGHT + 90, keep=keep)
    figure.update_xaxes(title_text=words("seconds since the first look [s]"), row=rows, col=1)
    return figure.update_layout(hovermode="x unified")


def _strips(words: Words) -> tuple[_Strip, ...]:
    return (
        _Strip(words("a kernel was running, observed [%]"), "utilization", share=True),
        _Strip(words("its memory was read or written, observed [%]"), "memory_utilization", share=True),
        _Strip(words("clock; dotted: the highest there is [MHz]"), "sm_clock_mhz", "max_sm_clock_mhz"),
        _Strip(words("power; dotted: its limit [W]"), "power_w", "power_limit_w"),
        _Strip(words("temperature [°C]"), "temperature_c"),
        _Strip(
            words("memory in use; dotted: all there is [GiB]"), "memory_used_bytes", "memory_total_bytes", float(2**30)
        ),
    )


def _draw(figure: go.Figure, strip: _Strip, gpus: Sequence[Telemetry], row: int, style: Style) -> None:
    _title(figure, strip.title, row, style)
    empty = True
    for number, gpu in enumerate(gpus):
        color = SERIES[number % len(SERIES)]
        for column, dash in ((strip.column, "solid"), (strip.bound, "dot")):
            values = drawable(gpu.columns[column] / strip.per) if column else np.zeros(0)
            if not np.isfinite(values).any():
                continue
            empty = False
            kept = thinned(values)
            figure.add_scatter(
                x=drawable(gpu.seconds[kept]), y=values[kept], name=short(gpu.name), legendgroup=str(number),
                row=row, col=1,
                line={"color": color, "width": 1.5, "dash": dash}, mode="lines+markers" if len(kept) == 1 else "lines",
                showlegend=row == 1 and dash == "solid",
            )  # fmt: skip
    if empty:
        _say(figure, style.words("the driver does not say"), row, style)
    elif strip.share:
        figure.update_yaxes(tickformat=".0%", range=[0.0, 1.05], row=row, col=1)
    else:
        figure.update_yaxes(rangemode="tozero", row=row, col=1)


def _throttle(figure: go.Figure, gpus: Sequence[Telemetry], row: int, style: Style) -> None:
    words = style.words
    _title(figure, words("why the clock was not higher, observed"), row, style)
    reasons = sorted({reason for gpu in gpus for reason in gpu.throttled})
    if not reasons:
        _say(figure, words("nothing held the clock back, or the driver does not say"), row, style)
        return
    for number, gpu in enumerate(gpus):
        for reason in (r for r in reasons if len(gpu.throttled.get(r, ()))):
            at: NDArray[np.float64] = gpu.throttled[reason]
            at = drawable(at)[:: max(1, -(-len(at) // 800))]
            figure.add_scatter(
                x=at, y=[short(reason, 28)] * len(at), mode="markers", legendgroup=str(number), showlegend=False,
                marker={"symbol": "square", "size": 7, "color": SERIES[number % len(SERIES)]}, row=row, col=1,
                name=short(gpu.name), hovertemplate=f"{plain(reason)}<extra>{short(gpu.name)}</extra>",
            )  # fmt: skip
    figure.update_yaxes(type="category", row=row, col=1)


def _title(figure: go.Figure, text: str, row: int, style: Style) -> None:
    figure.add_annotation(
        text=plain(text), x=0.0, y=1.0, xanchor="left", yanchor="bottom", showarrow=False,
        font={"color": style.theme.faint, "size": 11}, **_within(row),
    )  # fmt: skip


def _say(figure: go.Figure, text: str, row: int, style: Style) -> None:
    font = {"color": style.theme.faint, "size": 12}
    figure.add_annotation(text=plain(text), x=0.5, y=0.5, showarrow=False, font=font, **_within(row))
    figure.add_trace(go.Scatter(x=[None], y=[None], showlegend=False), row=row, col=1)
    figure.update_yaxes(showticklabels=False, range=[0.0, 1.0], fixedrange=True, row=row, col=1)


def _within(row: int) -> dict[str, str]:
    number = str(row) if row > 1 else ""
    return {"xref": f"x{number} domain", "yref": f"y{number} domain"}
