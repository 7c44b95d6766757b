"""The figures of the report, each with what it shows and how it is told to who can't see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.analysis.wording import scale_text
from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.data import whatif
from ampdoctor_dashboard.figures import costs
from ampdoctor_dashboard.figures.style import Style, nothing
from ampdoctor_dashboard.figures.timeline import timeline
from ampdoctor_dashboard.figures.vitals import timeline_of
from ampdoctor_dashboard.figures.whatif import ScaleCurve, scale_curve
from ampdoctor_dashboard.report import sites
from ampdoctor_dashboard.report.embedded import escaped_json
from ampdoctor_dashboard.words.told import told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import plotly.graph_objects as go
    from markupsafe import Markup
    from numpy.typing import NDArray

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor_dashboard.data.opened import OpenedRun
    from ampdoctor_dashboard.words import Words

MOST_CHARACTERS = 250_000
"""Characters of one figure: together with plotly itself they must fit an e-mail."""


@dataclass(frozen=True)
class Drawn:
    """One figure.

    Attributes:
        title: what it shows.
        explain: how to read it.
        height: in pixels.
        json: the figure, fit to stand in a document; empty where it is too large.
    """

    title: str
    explain: str
    height: int
    json: Markup | str


def drawn(opened: OpenedRun, diagnosis: Diagnosis, words: Words) -> list[Drawn]:
    """Return the main figures of a run."""
    style = Style(words=words)
    found = []
    for title, explain, draw in _figures(opened, diagnosis, style):
        try:
            figure = draw()
        except AmpDoctorError as error:
            figure = nothing(style, told(words, error.message), told(words, error.hint), height=140)
        except Exception as error:  # noqa: BLE001 - the rest of the report is worth having
            why = words("this figure could not be drawn; this is a defect of ampdoctor, please report it")
            figure = nothing(style, why, f"{type(error).__name__}: {str(error)[:200]}", height=140)
        found.append(_of(title, explain, figure))
    return found


def _of(title: str, explain: str, figure: go.Figure) -> Drawn:
    text = figure.to_json(validate=False) or ""
    return Drawn(
        title, explain, int(figure.layout.height or 300), escaped_json(text) if len(text) <= MOST_CHARACTERS else ""
    )


def _figures(
    opened: OpenedRun, diagnosis: Diagnosis, style: Style
) -> Iterator[tuple[str, str, Callable[[], go.Figure]]]:
    words = style.words
    yield (
        words("Timeline"),
        words(
            "The vitals of the run over its steps; findings are bands, skipped steps and changes of scale are marks."
        ),
        lambda: timeline(timeline_of(opened, words, diagnosis.findings), style),
    )
    yield (
        words("Zeros in the gradients"),
        words("Modules over the examined steps: which share of their weights' gradients is zero, of whatever cause."),
        lambda: sites.zeros(opened, style),
    )
    worst = sites.worst_site(opened, diagnosis)
    yield (
        sites.site_title(opened, worst, words),
        words("Elements by power of two above what each format holds; hatched loses bits, outside is lost."),
        lambda: sites.spectrum(opened, worst, style),
    )
    yield (
        words("What another loss scale would do"),
        words("The flushed share of the weight gradients at every loss scale, with bounds and what twins measured."),
        lambda: _scales(opened, style),
    )
    yield (
        words("Memory"),
        words("Where the memory of the recorded step went, at its peak."),
        lambda: costs.boxes(opened, None, "", style),
    )
    yield (
        words("The same step in other precisions"),
        words("What the step would take in other precision layouts, moment by moment."),
        lambda: costs.other_layouts(opened, None, "", style),
    )
    yield (
        words("Time"),
        words("Where the time of the step's operations went."),
        lambda: costs.by_operation(opened, None, "", style),
    )


def _scales(opened: OpenedRun, style: Style) -> go.Figure:
    answers = whatif.answers(opened, whatif.Asked())
    exponents = sorted(answers.by_scale)
    by_scale = [answers.by_scale[e] for e in exponents]
    curve = ScaleCurve(
        answers.own.number_format.title,
        np.array(exponents, float),
        _known(a.total.estimated for a in by_scale),
        _known(a.total.low for a in by_scale),
        _known(a.total.high for a in by_scale),
        _known(whatif.subnormal_share(a) for a in by_scale),
        answers.measured,
        answers.own_exponent,
        answers.own_exponent,
        scale_text(answers.own.own_scale),
        answers.overflows_from,
    )
    return scale_curve(curve, style)


def _known(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], float)
