"""The main figures of a run, by themselves: each function takes a run folder and returns a plotly figure.

They need neither a server nor a browser: `timeline("ampdoctor-runs/train").show()`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard.data.opened import OpenedRun
from ampdoctor_dashboard.figures import costs
from ampdoctor_dashboard.figures import timeline as drawn
from ampdoctor_dashboard.figures.style import Style
from ampdoctor_dashboard.figures.vitals import timeline_of
from ampdoctor_dashboard.report import sites
from ampdoctor_dashboard.theme import theme_of
from ampdoctor_dashboard.words import check_language, words_of

if TYPE_CHECKING:
    import os

    import plotly.graph_objects as go


def timeline(run: str | os.PathLike[str], *, theme: str = "light", lang: str = "en") -> go.Figure:
    """Return loss, loss scale, gradient norm, shares of the gradient, learning rate and pace over the steps."""
    opened, style = _opened(run), _style(theme, lang)
    return drawn.timeline(timeline_of(opened, style.words), style)


def zeros(run: str | os.PathLike[str], *, theme: str = "light", lang: str = "en") -> go.Figure:
    """Return the share of zeros in the weights' gradients, module by module over the examined steps."""
    return sites.zeros(_opened(run), _style(theme, lang))


def spectrum(run: str | os.PathLike[str], site: str, *, theme: str = "light", lang: str = "en") -> go.Figure:
    """Return the exponents of a site on its last step, and what each number format holds of them.

    Args:
        run: the run folder.
        site: `role:module.slot`, as addresses of the dashboard have it (`grad_output:decoder.cast`).
        theme: light or dark.
        lang: en or zh.

    Raises:
        AmpDoctorError: no tensor was recorded at such a site.
    """
    opened = _opened(run)
    number = opened.tensors.find(site)
    if number is None:
        known = ", ".join(known.key for known in opened.tensors.sites[:4])
        raise AmpDoctorError(f"no tensor was recorded at {site!r}", hint=f"there are {known}" if known else "")
    return sites.spectrum(opened, number, _style(theme, lang))


def memory(run: str | os.PathLike[str], *, theme: str = "light", lang: str = "en") -> go.Figure:
    """Return where the memory of the last recorded step went, at its peak."""
    return costs.boxes(_opened(run), None, "", _style(theme, lang))


def time(run: str | os.PathLike[str], *, theme: str = "light", lang: str = "en") -> go.Figure:
    """Return where the time of the last timed step went, by operation."""
    return costs.by_operation(_opened(run), None, "", _style(theme, lang))


def _opened(run: str | os.PathLike[str]) -> OpenedRun:
    folder = Path(run).resolve()
    return OpenedRun(folder.name, folder)


def _style(theme: str, lang: str) -> Style:
    check_language(lang)
    return Style(theme_of(theme), words_of(lang))
