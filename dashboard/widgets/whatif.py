"""What the page What-if says: the whole answer in a sentence, the sites in a table, and the cures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import html

from ampdoctor.analysis.wording import percent, scale_text
from ampdoctor.finding import Grade
from ampdoctor.formats import FP32
from ampdoctor_dashboard.widgets.badges import BAD, badge, grade_badge
from ampdoctor_dashboard.widgets.frames import note
from ampdoctor_dashboard.widgets.tables import column
from ampdoctor_dashboard.words.told import told

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ampdoctor.analysis.advice.recommendation import Recommendation, Recommendations
    from ampdoctor.analysis.advice.whatif import SiteShares, WhatIf
    from ampdoctor_dashboard.words import Words

MOST_ROWS = 2000
"""Sites that are listed: the worst ones."""

_DIGITS = 4
"""Digits of a share in percent."""


def spoken(answer: WhatIf, words: Words) -> Component:
    """Return the whole answer in one sentence, with what it rests on."""
    share = answer.total
    parts: list[Any] = [html.Strong(_sentence(answer, words))]
    if share.measured is not None:
        parts.append(grade_badge(Grade.MEASURED, words))
    if share.estimated is not None and not answer.gone:
        between = {"low": percent(share.low or 0.0), "high": percent(1.0 if share.high is None else share.high)}
        if share.measured is not None:
            estimate = percent(share.estimated)
            parts.append(
                html.Span(words("Without the twin: {share}, between {low} and {high}", share=estimate, **between))
            )
        else:
            parts.append(html.Span(words("Bounds: {low} to {high}", **between)))
        parts.append(grade_badge(Grade.ESTIMATED, words))
    return html.Div([html.Div(parts, className="answer-line"), *_remarks(answer, words)], className="answer")


def _sentence(answer: WhatIf, words: Words) -> str:
    setting = {"format": answer.number_format.title, "scale": scale_text(answer.scale)}
    share = answer.total.measured if answer.total.measured is not None else answer.total.estimated
    if answer.gone or share is None:
        return words("In {format} at loss scale {scale} nothing can be known of this step's gradients.", **setting)
    setting["share"] = percent(share)
    if answer.overflows:
        return words(
            "In {format} at loss scale {scale}, the largest gradient overflows, and {share} of the weight gradients' "
            "elements is flushed to zero.", **setting,
        )  # fmt: skip
    if share == 0.0:
        return words("In {format} at loss scale {scale}, nothing is flushed and nothing overflows.", **setting)
    return words(
        "In {format} at loss scale {scale}, {share} of the weight gradients' elements is flushed to zero, and nothing "
        "overflows.", **setting,
    )  # fmt: skip


def _remarks(answer: WhatIf, words: Words) -> list[Component]:
    said = []
    if answer.gone:
        said.append(words(
            "Every weight gradient asked about is zero, as is all that it is made from, and no twin has seen whether "
            "it was flushed or zero by right. Record with ampdoctor run --prove, or choose another step."
        ))  # fmt: skip
    if answer.overflows:
        said.append(words("A scaler would skip this step and halve its scale; without one, the weights become NaN."))
    if answer.estimated_at != answer.scale:
        at = scale_text(answer.estimated_at)
        said.append(words("Estimates are those at {scale}: recorded histograms move by powers of two only.", scale=at))
    own = answer.own_format.title if answer.own_format else FP32.title
    said.append(words("Step {step}, recorded in {format} at loss scale {scale}.",
                      step=answer.step, format=own, scale=scale_text(answer.own_scale)))  # fmt: skip
    if answer.own_format is None and answer.number_format is not FP32:
        said.append(words(
            "The run is in FP32: what autocast would leave in FP32 (embeddings, norms, losses) is taken to be "
            "{format} too.",
            format=answer.number_format.title,
        ))  # fmt: skip
    return [note(" ".join(said))]


def columns(words: Words) -> list[dict[str, Any]]:
    """Return the columns of the table of sites."""
    number: dict[str, Any] = {"type": "rightAligned", "width": 112, "suppressHeaderFilterButton": True}
    return [
        column("site", words("site"), flex=1, minWidth=200, tooltipField="site",
               explain=words("Module path and parameter or output.")),
        column("role", words("role"), width=140,
               explain=words("Weight gradients, or gradients on their way through the model. Of the latter, flushed is "
                             "what this stage alone would flush.")),
        column("flushed", words("flushed [%], estimated"),
               explain=words("Elements that become zero, of those nonzero in FP32: worked out from histograms."),
               **number),
        column("low", words("at least [%]"), explain=words("Lower bound of what is flushed."), **number),
        column("high", words("at most [%]"), explain=words("Upper bound of what is flushed."), **number),
        column("measured", words("flushed [%], measured"),
               explain=words("What a twin step flushed in just this setting; empty where none was executed."),
               **number),
        column("subnormal", words("subnormal [%], estimated"),
               explain=words("Elements that stay nonzero and lose bits: below the format's smallest normal number."),
               **number),
        column("overflowed", words("overflowed [%], estimated"),
               explain=words("Elements that become infinite or NaN by their own size."), **number),
        column("elements", words("elements"),
               explain=words("Elements that are nonzero in FP32, estimated: what all shares are of."), **number),
    ]  # fmt: skip


def rows(answer: WhatIf, words: Words) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of the table, and how many sites are left out of it: those that lose least."""
    sites = [*answer.weights, *answer.outputs]
    chosen = sites if len(sites) <= MOST_ROWS else sorted(sites, key=_worst)[:MOST_ROWS]
    roles = {"weight_grad": words("weight gradient"), "grad_output": words("gradient on its way")}
    return [_row(site, roles.get(site.role, site.role)) for site in chosen], len(sites) - len(chosen)


def _worst(site: SiteShares) -> float:
    share = site.flushed.measured if site.flushed.measured is not None else site.flushed.estimated
    return -((share or 0.0) + (site.overflowed or 0.0))


def _row(site: SiteShares, role: str) -> dict[str, Any]:
    share = site.flushed
    return {
        "site": site.site, "role": role, "flushed": _percent(share.estimated), "low": _percent(share.low),
        "high": _percent(share.high), "measured": _percent(share.measured), "subnormal": _percent(site.subnormal),
        "overflowed": _percent(site.overflowed), "elements": round(site.elements),
    }  # fmt: skip


def _percent(share: float | None) -> float | None:
    """Return a share in percent with a few digits, as a number that the table can sort; None stays unknown."""
    return None if share is None else float(f"{100.0 * min(max(share, 0.0), 1.0):.{_DIGITS}g}")


def scale_of(found: Recommendations) -> float | None:
    """Return the loss scale that is recommended: that of the best cure which has one; None without."""
    return next((cure.scale for cure in found.ranked if cure.scale is not None), None)


def cures(found: Recommendations, words: Words) -> Component:
    """Return the cures for the run, best first."""
    if not found.ranked:
        largest = found.largest_scale
        said = [words("Nothing has to change: next to nothing is flushed.")]
        if largest is not None:
            said.append(words("The largest loss scale that leaves room: {scale}.", scale=scale_text(largest)))
        return note(" ".join(said))
    items = [html.Li(_cure(cure, words)) for cure in found.ranked]
    return html.Div([html.Ol(items, className="cures"), note(told(words, found.note)) if found.note else ""])


def _cure(cure: Recommendation, words: Words) -> Component:
    head: list[Any] = [html.Strong(told(words, cure.title)), " ", grade_badge(cure.grade, words)]
    if cure.scale is not None:
        head += [" ", badge(scale_text(cure.scale))]
    if cure.after and cure.after.flushed is not None and cure.before and cure.before.flushed is not None:
        tone = BAD if cure.after.flushed > cure.before.flushed else "good"
        change = words(
            "flushed: {before} to {after}", before=percent(cure.before.flushed), after=percent(cure.after.flushed)
        )
        head += [" ", badge(change, tone)]
    return html.Div(
        [html.Div(head, className="cure-head"), dmc.Text(told(words, cure.expected), size="sm", className="faint")]
    )
