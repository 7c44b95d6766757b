"""What the page Ops says of single operations: where the first NaN was born, and where its inputs came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from ampdoctor.analysis.wording import number
from ampdoctor.finding import Grade
from ampdoctor_dashboard.data.ops import BEFORE_THE_STEP
from ampdoctor_dashboard.data.source_line import location, source_line
from ampdoctor_dashboard.widgets.badges import BAD, GOOD, badge, grade_badge
from ampdoctor_dashboard.widgets.frames import note
from ampdoctor_dashboard.widgets.tables import column, recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dash.development.base_component import Component

    from ampdoctor.trace.info import RunInfo
    from ampdoctor.trace.schema import OpRow
    from ampdoctor_dashboard.words import Words

SHOWN = 80
"""Characters of a name in text; tables have all of it."""


def cut(name: str) -> str:
    """Return a name short enough for a sentence."""
    return name if len(name) <= SHOWN else f"{name[: SHOWN - 1]}…"


def headline(born: OpRow | None, lost: OpRow | None, info: RunInfo, words: Words) -> Component:
    """Return what went wrong first: the birth of NaN or inf, or else the first loss."""
    if born is not None:
        text = words("First not finite: {op} in {module}", op=cut(born.op), module=_module(born, words))
        told = [_count(born, words), *([_also_in_fp32(words)] if born.born_fp32 else [])]
        return _told(badge(words("NaN or inf"), BAD), text, born, info, words, " ".join(told))
    if lost is not None:
        text = words("Nothing became NaN or infinite. First loss: {op} in {module}",
                     op=cut(lost.op), module=_module(lost, words))  # fmt: skip
        what = words("{flushed} of {nonzero} elements are flushed there.", flushed=lost.flushed, nonzero=lost.nonzero)
        return _told(badge(words("finite"), GOOD), text, lost, info, words, what if lost.flushed else "")
    quiet = words("Nothing became NaN or infinite, and no operation flushed or absorbed anything.")
    return html.Div(
        [badge(words("finite"), GOOD), html.Strong(quiet), grade_badge(Grade.MEASURED, words)], className="first"
    )


def _count(row: OpRow, words: Words) -> str:
    return words(
        "{born} of {numel} elements are not finite although all inputs were; in FP32 the largest would be {absmax}.",
        born=row.born, numel=row.numel, absmax=number(row.absmax),
    )  # fmt: skip


def _also_in_fp32(words: Words) -> str:
    return words("FP32 gives no finite value either, for at least some: precision is not the cause of those.")


def _told(mark: Component, text: str, row: OpRow, info: RunInfo, words: Words, more: str) -> Component:
    head = html.Div(
        [mark, html.Strong(text, title=f"{row.op} {row.module}"), grade_badge(Grade.MEASURED, words)], className="first"
    )
    return html.Div([head, note(more) if more else "", _line(row, info, words)])


def _line(row: OpRow, info: RunInfo, words: Words) -> Component | str:
    """Return the source line, with its text where that is at hand."""
    where = location(row.file, row.line)
    if not where:
        return note(words("The line of the source that ran it is not known."))
    text = source_line(info, row.file, row.line)
    function = words("in {function}", function=cut(row.function)) if row.function else ""
    head = html.Div([html.Span(where), html.Span(function, className="faint")], className="source-head")
    return html.Div(
        [head, html.Pre(html.Code(text)) if text else ""], className="source source-bad" if row.born else "source"
    )


def chain(rows: Sequence[OpRow], words: Words) -> Component:
    """Return an operation and those that its inputs came from, the last first."""
    items = [html.Li(_link(row, words), className="chain-last" if not n else "") for n, row in enumerate(rows)]
    sources = rows[-1].inputs_from
    if sources is not None and BEFORE_THE_STEP in sources:
        items.append(html.Li(words("what was there before the step: a parameter, data, a constant"), className="faint"))
    return html.Ol(items, className="chain")


def _link(row: OpRow, words: Words) -> Component:
    parts: list[Any] = [
        html.Code(cut(row.op)), html.Span(_module(row, words), title=row.module),
        html.Span(f"{row.dtype_in} → {row.dtype_out}", className="faint"),
        html.Span(words("largest {absmax}", absmax=number(row.absmax)), className="faint"),
    ]  # fmt: skip
    if row.born:
        parts.append(badge(words("{count} born NaN or inf", count=row.born), BAD))
    where = location(row.file, row.line)
    return html.Div([html.Div(parts, className="first"), html.Div(where, className="faint small")])


def _module(row: OpRow, words: Words) -> str:
    return cut(row.module) if row.module else words("code outside any module")


def columns(words: Words) -> list[dict[str, Any]]:
    """Return the columns of the table of operations, explained by the schema."""
    few: dict[str, Any] = {"type": "rightAligned", "width": 96, "suppressHeaderFilterButton": True}

    def counted(name: str, title: str) -> dict[str, Any]:
        return recorded("ops", name, title, words, **few)

    source = words("Source file and line of the user's code that ran it, or whose forward it undoes.")
    flushed = words("Elements that are zero, and nonzero in FP32: their share of those nonzero in FP32.")
    return [
        recorded("ops", "seq", words("order"), words, width=84, type="rightAligned", suppressHeaderFilterButton=True),
        recorded("ops", "module", words("module"), words, flex=1, minWidth=170, tooltipField="module"),
        recorded("ops", "op", words("operation"), words, width=160, tooltipField="op"),
        recorded("ops", "direction", words("direction"), words, width=104),
        recorded("ops", "dtype_in", words("takes"), words, width=112, tooltipField="dtype_in"),
        recorded("ops", "dtype_out", words("gives"), words, width=110),
        column("where", words("source"), explain=source, width=180, tooltipField="where"),
        counted("calls", words("calls")),
        column("flushed", words("flushed [%]"), explain=flushed, **few),
        counted("overflowed", words("overflowed")),
        counted("born", words("born NaN or inf")),
        counted("absorbed", words("absorbed")),
        counted("integers_lost", words("integers lost")),
        counted("cancelled", words("cancelled")),
        counted("relative_error", words("relative error")),
        counted("energy_lost", words("energy lost")),
        counted("absmax", words("largest in FP32")),
        recorded("ops", "source", words("seen"), words, width=90),
    ]  # fmt: skip


def table_rows(rows: Sequence[OpRow]) -> list[dict[str, Any]]:
    """Return the rows of the table."""
    return [
        {
            "id": str(row.seq), "seq": row.seq, "module": row.module, "op": row.op, "direction": row.direction,
            "dtype_in": row.dtype_in, "dtype_out": row.dtype_out, "where": location(row.file, row.line),
            "calls": row.calls,
            "flushed": _digits(100.0 * row.flushed / row.nonzero) if row.nonzero else None,
            "overflowed": row.overflowed, "born": row.born, "absorbed": row.absorbed,
            "integers_lost": row.integers_lost, "cancelled": row.cancelled,
            "relative_error": _digits(row.relative_error), "energy_lost": _digits(row.energy_lost),
            "absmax": _digits(row.absmax), "source": row.source,
        }
        for row in rows
    ]  # fmt: skip


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
