"""The verdict, and what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import html

from ampdoctor.finding import Severity
from ampdoctor_dashboard.widgets.badges import badge
from ampdoctor_dashboard.widgets.prose import prose

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.analysis.twins.measured import MeasuredStep
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor_dashboard.words import Words


def verdict_card(diagnosis: Diagnosis, tried: tuple[MeasuredStep, ...], words: Words) -> Component:
    """Return the verdict, how bad it is, and what it rests on in numbers."""
    tone = tone_of(diagnosis)
    sign = {"bad": "✕", "warn": "!", "good": "✓", "plain": "?"}[tone]
    said = html.P(prose(words, diagnosis.verdict), className="verdict-text", role="status")
    detail = html.P(_detail(diagnosis, words), className="faint verdict-detail")
    named: Any = {"aria-hidden": "true"}
    mark = html.Span(sign, className="verdict-sign", **named)
    return html.Section(
        [
            html.Div([mark, html.Div([said, detail])], className="verdict-head"),
            html.Dl(_tiles(diagnosis, tried, words), className="verdict-tiles"),
        ],
        className=f"card verdict verdict-{tone}",
    )


def tone_of(diagnosis: Diagnosis) -> str:
    """Return how bad a verdict is: bad, warn, good, or plain where next to nothing could be judged."""
    if diagnosis.faults:
        return "bad" if any(f.severity is Severity.ERROR for f in diagnosis.faults) else "warn"
    return "good" if diagnosis.passed and not diagnosis.crashed else "plain"


def waiting(words: Words) -> Component:
    """Return what stands in for the verdict as long as the run is being judged."""
    lines = [dmc.Skeleton(height=26, width="70%"), dmc.Skeleton(height=14, width="45%", mt=12)]
    said = html.P(badge(words("being judged ..."), "blue", lively=True), role="status")
    return html.Section([said, *lines], className="card verdict verdict-plain verdict-waiting")


def _detail(diagnosis: Diagnosis, words: Words) -> str:
    notes = len(diagnosis.findings) - len(diagnosis.faults)
    judged = words(
        "{passed} rules had what they need and found nothing; {skipped} could not look.",
        passed=len(diagnosis.passed),
        skipped=len(diagnosis.skipped) + len(diagnosis.crashed),
    )
    if diagnosis.faults:
        count = len(diagnosis.faults)
        found = words("{count} causes found, worst first.", count=count) if count > 1 else words("One cause found.")
    elif notes:
        found = words("Nothing is wrong; what is below is worth knowing.")
    else:
        found = words("Nothing was found.") if diagnosis.passed else ""
    return f"{found} {judged}".strip()


def _tiles(diagnosis: Diagnosis, tried: tuple[MeasuredStep, ...], words: Words) -> list[Component]:
    examined = diagnosis.examined
    some = [
        (words("steps recorded"), examined.steps, words("Optimizer steps, applied or skipped.")),
        (
            words("steps examined"),
            examined.examined_steps,
            words("Steps on which tensors were recorded: the observed and estimated numbers rest on these."),
        ),
        (words("tensors"), examined.tensors, words("Tensors whose values were counted on these steps.")),
        (words("modules"), examined.modules, words("Modules of the model that were called.")),
        (
            words("twin steps"),
            len(tried),
            words("Steps that were executed in FP32 and other settings as well: the measured numbers rest on these."),
        ),
    ]
    return [
        html.Div([html.Dt(title), html.Dd(f"{count:,}")], title=why, className="verdict-tile")
        for title, count, why in some
    ]
