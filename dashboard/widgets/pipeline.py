"""The pipeline drawn: stations in lanes, their ranges on the format's own, and the calls in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from ampdoctor.finding import Grade
from ampdoctor.formats import format_of_dtype, title_of_dtype
from ampdoctor_dashboard.data.stations import Station, holds_on
from ampdoctor_dashboard.widgets.badges import PLAIN, badge, grade_badge, severity_badge
from ampdoctor_dashboard.widgets.frames import note
from ampdoctor_dashboard.widgets.links import address
from ampdoctor_dashboard.widgets.prose import prose
from ampdoctor_dashboard.widgets.station import BAD, GOOD, UNKNOWN, UNUSED, WARN, Shown, extent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dash.development.base_component import Component

    from ampdoctor.finding import Finding
    from ampdoctor_dashboard.data.op_classes import Ran
    from ampdoctor_dashboard.data.pipeline import Values
    from ampdoctor_dashboard.view import View
    from ampdoctor_dashboard.words import Words

LEFT, RIGHT = -56, 24
"""Exponents at both ends of a drawn range: what gradients and weights of real models come to."""

SHOWN_DTYPES = 3
"""dtypes that a station names."""

_SIGNS = {BAD: "✕", WARN: "!", GOOD: "✓", UNUSED: "\u2013", UNKNOWN: "?"}


_HIDDEN: Any = {"aria-hidden": "true"}


def titles(words: Words) -> dict[Station, tuple[str, str]]:
    """Return the name of each station and what happens there."""
    return {
        Station.WEIGHTS: (
            words("Master weights"),
            words("The weights that the optimizer changes. They belong in FP32: half has too few bits for small "
                  "updates."),
        ),
        Station.CAST: (
            words("Cast"),
            words("Autocast makes half copies of weights and inputs for the operations that gain from it."),
        ),
        Station.FORWARD: (
            words("Forward"),
            words("The model computes its output. Autocast runs matrix products in half, and norms and softmax in "
                  "FP32."),
        ),
        Station.LOSS: (
            words("Loss"), words("The loss belongs in FP32: its sums and logarithms need the range and the bits.")
        ),
        Station.SCALE: (
            words("\u00d7 scale"), words("The loss is multiplied, so that small gradients stay inside FP16's range.")
        ),
        Station.BACKWARD: (
            words("Backward"),
            words("Gradients go back through the model in the dtypes of the forward pass. What is too small for them "
                  "becomes zero."),
        ),
        Station.UNSCALE: (words("Unscale"), words("The gradients in .grad are divided by the scale, in FP32.")),
        Station.CLIP: (
            words("Clip"),
            words("The norm of the gradients is limited. It is that of the true gradients only after unscaling."),
        ),
        Station.CHECK: (
            words("Inf check"),
            words("The scaler looks for infinite and NaN gradients: they mean that the scale was too large."),
        ),
        Station.STEP: (
            words("Step or skip"),
            words("The optimizer changes the weights, or the step is skipped where a gradient is not finite."),
        ),
        Station.UPDATE: (
            words("Update of the scale"),
            words("The scale is halved after a skipped step, and doubled after a long run of good ones."),
        ),
    }  # fmt: skip


def lanes(words: Words) -> list[tuple[str, tuple[Station, ...]]]:
    """Return the stations as they are drawn: a row each for what belongs together."""
    return [
        (words("forward"), (Station.WEIGHTS, Station.CAST, Station.FORWARD, Station.LOSS)),
        (words("backward"), (Station.SCALE, Station.BACKWARD, Station.UNSCALE, Station.CLIP)),
        (words("step"), (Station.CHECK, Station.STEP, Station.UPDATE)),
    ]


def diagram(shown: Mapping[Station, Shown], chosen: Station, half: str | None, words: Words) -> Component:
    """Return all stations, with arrows from each to the next."""
    rows = []
    for name, stations in lanes(words):
        items: list[Component] = []
        for station in stations:
            items += [_station(station, shown[station], station is chosen, half, words), _arrow()]
        last = name == words("step")
        end = html.Span(words("next step ↺"), className="lane-end") if last else html.Span("↵", className="lane-end")
        row = html.Div([*items[:-1], end], className="lane-row")
        rows.append(html.Div([html.Div(name, className="lane-name"), row], className="lane"))
    return html.Div(rows, className="pipeline")


def _arrow() -> Component:
    return html.Span("→", className="arrow", **_HIDDEN)


def _health(health: str, words: Words) -> str:
    return {
        BAD: words("fault"),
        WARN: words("attention"),
        GOOD: words("in order"),
        UNUSED: words("not used"),
        UNKNOWN: words("not recorded"),
    }[health]


def _station(station: Station, shown: Shown, chosen: bool, half: str | None, words: Words) -> Component:
    name, health = titles(words)[station][0], _health(shown.health, words)
    number = [*Station].index(station) + 1
    sign = html.Span([html.Span(_SIGNS[shown.health], **_HIDDEN), f" {health}"], className="health")
    head = [html.Span(str(number), className="station-number"), html.Span(name, className="station-name"), sign]
    fact = [_fact(shown, words)] if shown.facts else []
    body = [
        html.Div(head, className="station-head"),
        html.Div([dtype_pill(dtype) for dtype in shown.dtypes[:SHOWN_DTYPES]], className="pills"),
        *[_range(values, half, words) for values in shown.values if values.elements],
        *fact,
        html.Div(shown.says.replace("`", ""), className="station-says"),
    ]
    pressed: Any = {"aria-pressed": "true" if chosen else "false"}
    return html.Button(
        body, id={"pipeline-station": station.value}, n_clicks=0,
        className=f"station station-{shown.health}" + (" station-chosen" if chosen else ""),
        **pressed,
    )  # fmt: skip


def _fact(shown: Shown, words: Words) -> Component:
    fact = shown.facts[0]
    grade = {
        Grade.OBSERVED: words("observed"), Grade.ESTIMATED: words("estimated"), Grade.MEASURED: words("measured")
    }[fact.grade]  # fmt: skip
    tone = "good" if fact.grade is Grade.MEASURED else PLAIN
    return html.Div(
        [
            html.Span(fact.value, className="fact-value"),
            html.Span(fact.name, className="fact-name"),
            badge(grade, tone),
        ],
        className="fact",
    )


def dtype_pill(dtype: str) -> Component:
    """Return a dtype as a label in the colour of its format."""
    number_format = format_of_dtype(dtype)
    kind = number_format.name if number_format else "other"
    return html.Span(title_of_dtype(dtype), className=f"pill pill-{kind}")


def _range(values: Values, half: str | None, words: Words) -> Component:
    """Return from where to where magnitudes go, on what the half format of the step can hold."""
    number_format = format_of_dtype(half or values.dtype)
    kind = number_format.name if number_format else "other"
    parts = []
    if half is not None and (own := format_of_dtype(half)) is not None:
        parts.append(html.Span(className="range-band", style=_place(own.min_subnormal_exponent, own.max_exponent + 1)))
    title = title_of_dtype(values.dtype)
    if values.lowest is None or values.highest is None:
        text = f"{title}: {extent(values, words)}"
    else:
        text = f"{title}: {extent(values, words)}"
        kind = stored.name if (stored := format_of_dtype(values.dtype)) else kind
        where = _place(values.lowest, values.highest + 1)
        parts.append(html.Span(className=f"range-bar pill-{kind}", style=where))
    said = words(
        "magnitudes, {text}; shaded is what {half} can hold", text=text, half=title_of_dtype(half or "float32")
    )
    named: Any = {"aria-label": said}
    track = html.Span(parts, className="range-track", role="img", title=said, **named)
    return html.Span([track, html.Span(text, className="range-text")], className="range")


def _place(first: int, last: int) -> dict[str, str]:
    low, high = (min(max(e, LEFT), RIGHT) for e in (first, last))
    across = RIGHT - LEFT
    return {"left": f"{100 * (low - LEFT) / across:.1f}%", "width": f"{max(100 * (high - low) / across, 1.5):.1f}%"}


def details(
    station: Station, shown: Shown, ran: Sequence[Ran], found: Iterable[Finding], step: int, view: View, words: Words
) -> Component:
    """Return all that is known of one station."""
    title, explained = titles(words)[station]
    head = html.Div([html.Strong(title), badge(_health(shown.health, words), _tone(shown.health))], className="first")
    parts: list[Any] = [
        head,
        html.P(explained),
        html.P(shown.says.replace("`", ""), className="says") if shown.says else "",
    ]
    if shown.facts:
        parts.append(html.Dl([_row(f.name, f.value, f.grade, words) for f in shown.facts], className="station-facts"))
    if station is Station.FORWARD and ran:
        parts.append(_classes(ran, words))
    listed = [_finding(finding, step, view, words) for finding in found]
    parts.append(html.Ul(listed, className="found-here") if listed else note(words("No finding at this station.")))
    return html.Div(parts)


def _tone(health: str) -> str:
    return {BAD: "bad", WARN: "warn", GOOD: "good"}.get(health, PLAIN)


def _row(name: str, value: str, grade: Grade, words: Words) -> Component:
    return html.Div([html.Dt(name), html.Dd([html.Span(value), grade_badge(grade, words)])])


def _classes(ran: Sequence[Ran], words: Words) -> Component:
    """Return in which dtype each class of operations ran."""
    names = {
        "loss": words("loss"), "attention": words("attention kernels"),
        "matmul": words("matrix products, convolutions"), "softmax": words("softmax"), "norm": words("norms"),
        "embedding": words("embeddings"),
        "nonlinearity": words("nonlinearities"), "sum": words("sums, means"), "elementwise": words("elementwise"),
    }  # fmt: skip
    rows: dict[str, list[Ran]] = {}
    for row in ran:
        rows.setdefault(row.kind, []).append(row)
    body = [
        html.Tr([
            html.Td(names.get(kind, kind)),
            html.Td([html.Span([dtype_pill(r.dtype), f" \u00d7 {r.calls}"], className="ran") for r in some]),
        ])
        for kind, some in rows.items()
    ]  # fmt: skip
    head = html.Tr([html.Th(words("operations")), html.Th(words("ran in, \u00d7 calls"))])
    return html.Table([html.Thead(head), html.Tbody(body)], className="classes")


def _finding(finding: Finding, step: int, view: View, words: Words) -> Component:
    link = address("diagnosis", view, finding=finding.fingerprint)
    elsewhere = [] if holds_on(finding, step) else [badge(words("on other steps"))]
    head = html.Div(
        [severity_badge(finding.severity, words), html.Span(finding.name, className="faint"), *elsewhere],
        className="first",
    )
    return html.Li([head, dcc.Link(prose(words, finding.summary), href=link)])


def legend(half: str | None, words: Words) -> Component:
    """Return what the small bars mean."""
    bars = words("Bars: magnitudes from 2^{low} to 2^{high}.", low=LEFT, high=RIGHT)
    shaded = words("Shaded: what {half} can hold.", half=title_of_dtype(half)) if half else ""
    return dmc.Text(f"{bars} {shaded}", size="xs", className="faint")
