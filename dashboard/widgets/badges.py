"""Small labels: how a number was obtained, how bad a finding is, what a run is up to. They say it in words as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import html

from ampdoctor.finding import Grade, Severity

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor_dashboard.words import Words

PLAIN, GOOD, WARN, BAD, BLUE = "plain", "good", "warn", "bad", "blue"
"""Tones: classes of assets/style.css, readable on both grounds."""


def badge(text: str, tone: str = PLAIN, why: str = "", *, lively: bool = False) -> Component:
    """Return a label; `why` is said when one points at it, and a lively one has a pulse."""
    inside: Any = [html.Span(className="pulse"), text] if lively else text
    label = html.Span(inside, className=f"badge badge-{tone}")
    return dmc.Tooltip(label, label=why, withArrow=True) if why else label


def grade_badge(grade: Grade, words: Words) -> Component:
    """Return the label of a grade."""
    title, why, tone = {
        Grade.OBSERVED: (words("observed"), words("counted in the run itself"), PLAIN),
        Grade.ESTIMATED: (words("estimated"), words("worked out from histograms, with bounds"), WARN),
        Grade.MEASURED: (words("measured"), words("the step was executed in that setting as well"), GOOD),
    }[grade]
    return badge(title, tone, why)


def severity_badge(severity: Severity, words: Words) -> Component:
    """Return the label of a severity."""
    title, why, tone = {
        Severity.ERROR: (words("error"), words("the run is harmed"), BAD),
        Severity.WARNING: (words("warning"), words("the run will be harmed, or part of it is"), WARN),
        Severity.NOTE: (words("note"), words("worth knowing, nothing to do"), BLUE),
    }[severity]
    return badge(title, tone, why)
