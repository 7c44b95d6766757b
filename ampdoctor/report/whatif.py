"""What another number format or loss scale would do, for people and for programs."""

from __future__ import annotations

import json
from math import log2
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.wording import percent, scale_text
from ampdoctor.formats import FP32
from ampdoctor.report.chart import Curve, Mark, marked
from ampdoctor.report.json import SCHEMA_VERSION
from ampdoctor.report.layout import PLAIN_WIDTH, WIDEST, Page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampdoctor.analysis.advice.whatif import Share, SiteShares, WhatIf

UNKNOWN = "-"

CURVE_HEIGHT = 12

_ELSEWHERE = "Record with `ampdoctor run --prove`, or ask about another step."


def document(answer: WhatIf, run: str) -> str:
    """Return `answer` as JSON; null is "not known" or "not measured"."""
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "step": answer.step,
        "number_format": answer.number_format.name,
        "scale": answer.scale,
        "estimated_at": answer.estimated_at,
        "run_number_format": answer.own_format.name if answer.own_format else "fp32",
        "run_scale": answer.own_scale,
        "overflows": answer.overflows,
        "gone": answer.gone,
        "total": _shares(answer.total),
        "sites": [_entry(site) for site in answer.weights],
        "grad_outputs": [_entry(site) for site in answer.outputs],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _shares(share: Share) -> dict[str, float | None]:
    return {"estimated": share.estimated, "low": share.low, "high": share.high, "measured": share.measured}


def _entry(site: SiteShares) -> dict[str, Any]:
    return {"site": site.site, **_shares(site.flushed), "subnormal": site.subnormal, "overflowed": site.overflowed}


def page(answer: WhatIf, run: str, width: int = PLAIN_WIDTH) -> Page:
    """Return `answer` as a page: the whole gradient in a sentence, then a table of the sites."""
    paper = Page(width)
    setting = f"{answer.number_format.title} at loss scale {scale_text(answer.scale)}"
    paper.say(f"{setting}: {_nothing_left(answer) or _sentence(answer)}", style="bold")
    if answer.estimated_at != answer.scale:
        paper.say(
            f"Estimated are the shares at {scale_text(answer.estimated_at)}: recorded bins move by powers of two only. "
            "The bounds hold for both."
        )
    if answer.overflows:
        paper.say(
            f"The largest gradient does not fit: it becomes {_beyond(answer)}, and a scaler would skip the step.",
            style="bold yellow",
        )
    paper.blank()
    own = answer.own_format.title if answer.own_format else "FP32"
    paper.say(
        f"step {answer.step}, recorded in {own} at loss scale {scale_text(answer.own_scale)}",
        label="From  ",
        label_style="bold",
    )
    paper.say(run, label="Run   ", label_style="bold") if run else None
    _table(paper, "weight gradients", answer.weights)
    _table(paper, "gradients on their way through the model", answer.outputs)
    paper.blank()
    paper.say(
        "Shares of the elements that are nonzero in FP32. flushed: estimated, with bounds. Of gradients on their way "
        "it is what this stage alone would flush.",
        style="dim",
    )
    if answer.own_format is None and answer.number_format is FP32:
        paper.say("Ask with --number-format fp16 whether FP16 would hold this.", style="dim")
    elif answer.own_format is None:
        paper.say(
            f"What the run holds in FP32 is taken to be {answer.number_format.title} as under autocast, which leaves "
            "embeddings, layer norms and losses in FP32.",
            style="dim",
        )
    return paper


def _beyond(answer: WhatIf) -> str:
    return "infinite" if answer.number_format.has_inf else "NaN"


def _nothing_left(answer: WhatIf) -> str:
    """Return why nothing can be said of the weight gradients; empty where something can."""
    if not answer.gone:
        return ""
    zero = f"every weight gradient asked about is zero on step {answer.step}"
    if answer.own_format is None:
        return f"nothing to flush: {zero}, in FP32."
    return (
        f"nothing can be known: {zero}, as is all that it is made from, and no twin has seen whether it was flushed "
        f"or zero by right. {_ELSEWHERE}"
    )


def _sentence(answer: WhatIf) -> str:
    """Return what becomes of the weight gradients as a whole."""
    parts, share = [], answer.total
    if share.measured is not None:
        parts.append(f"{percent(share.measured)} of the weight gradients is flushed (measured on step {answer.step})")
    if share.estimated is not None and share.low is not None and share.high is not None:
        what = "" if parts else " of the weight gradients is flushed"
        between = f"{percent(share.low)} to {percent(share.high)}"
        parts.append(f"{percent(share.estimated)}{what} (estimated, {between})")
    if parts:
        return "; ".join(parts) + "."
    return (
        f"nothing can be known: little or nothing is left of the weight gradients on step {answer.step}, and no twin "
        f"has seen how large they were. {_ELSEWHERE}"
    )


def _table(paper: Page, title: str, sites: Sequence[SiteShares]) -> None:
    if not sites:
        return
    head = (title, "flushed", "low", "high", "measured", "subnormal", "overflowed")
    rows = [head, *(_row(site) for site in sites)]
    keep = [i for i in range(len(head)) if i < 2 or any(row[i] != UNKNOWN for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in keep}
    paper.blank()
    for number, row in enumerate(rows):
        cells = [row[i].ljust(widths[i]) if i == 0 else row[i].rjust(max(widths[i], 8)) for i in keep]
        paper.line("  ".join(cells), style="" if number else "bold")


def _row(site: SiteShares) -> tuple[str, ...]:
    share = site.flushed
    values = (
        share.estimated, share.low, share.high, share.measured, site.subnormal, site.overflowed,
    )  # fmt: skip
    return (site.site, *(UNKNOWN if v is None else percent(min(max(v, 0.0), 1.0)) for v in values))


def curve(answers: Sequence[WhatIf], measured: Mapping[float, float], width: int, *, fine: bool) -> str:
    """Return the flushed share of the whole gradient against the loss scale, as a plot with its legend."""
    exponents = [round(log2(a.scale)) for a in answers]
    values = [float("nan") if (e := a.total.estimated) is None else 100.0 * e for a in answers]
    own = log2(answers[0].own_scale)
    marks = [
        Mark(round(at) - exponents[0], 100.0 * share, "o")
        for at, share in measured.items()
        if exponents[0] <= round(at) <= exponents[-1]
    ]
    if exponents[0] <= round(own) <= exponents[-1]:
        marks.append(Mark(round(own) - exponents[0], None, "^"))
    names = [f"2^{e}" if e % 4 == 0 else "" for e in exponents]
    title = f"% of the weight gradients flushed in {answers[0].number_format.title}, by loss scale"
    picture = marked(
        Curve(title, values), (0.0, 100.0), names, marks,
        width=min(width, WIDEST), height=CURVE_HEIGHT, fine=fine,
    )  # fmt: skip
    legend = f"^ the run's own scale, {scale_text(answers[0].own_scale)}"
    over = next((a.scale for a in answers if a.overflows), None)
    legend += f"; o measured by a twin on step {answers[0].step}" if measured else ""
    legend += f"; overflows from {scale_text(over)} up" if over is not None else ""
    return f"{picture}\n{legend}\n"
