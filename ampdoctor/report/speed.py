"""Where a step's time went, for people and for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ampdoctor.analysis.speed import SETTINGS, Speed, surely_faster, times_as_fast
from ampdoctor.analysis.wording import number, percent
from ampdoctor.formats import title_of_dtype
from ampdoctor.report.json import SCHEMA_VERSION
from ampdoctor.report.layout import PLAIN_WIDTH, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ampdoctor.trace.schema import PaceRow, TimingRow

    Group = tuple[str, float, int]

_LINES = 8
"""Operations and modules that are listed; what follows is added up."""

_BAR = 24
"""Columns of a bar that stands for all of the time."""

_BY: Mapping[str, Callable[[TimingRow], str | None]] = {
    "direction": lambda row: row.direction,
    "dtype": lambda row: title_of_dtype(row.dtype_out) if row.dtype_out else "other",
    "operation": lambda row: row.op,
    "module": lambda row: row.module,
}


def document(speed: Speed, paces: Mapping[str, PaceRow], run: str) -> str:
    """Return it as JSON; times are in milliseconds."""
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "step": speed.step,
        "measured_on": "device" if speed.on_device else "host",
        "total_ms": speed.total_ms,
        "shares": {name: speed.share(rows) for name, rows in _kinds(speed)},
        "by": {
            name: [{"name": n, "ms": ms, "calls": calls} for n, ms, calls in speed.grouped(key)]
            for name, key in _BY.items()
        },
        "precisions": {
            name: {"ms": row.wall_ms, "fastest_ms": row.fastest_ms, "slowest_ms": row.slowest_ms, "own": row.own}
            for name, row in paces.items()
        },
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def page(
    speed: Speed, paces: Mapping[str, PaceRow], run: str, width: int = PLAIN_WIDTH, declined: str | None = None
) -> Page:
    """Return it as a page: shares that matter for precision, then operations and modules, longest first.

    Args:
        speed: the operations of one step.
        paces: what other precisions took, by setting.
        run: where the run lies.
        width: columns.
        declined: why some or all of the precisions were not timed, though it was asked for.
    """
    paper = Page(width)
    where = "on the device" if speed.on_device else "on the host"
    paper.say(f"Step {speed.step}: its operations took {number(speed.total_ms)} ms {where}.", style="bold")
    paper.say(run, label="Run   ", label_style="bold") if run else None
    paper.blank()
    for name, rows in _kinds(speed):
        _line(paper, name, speed.share(rows), speed.time(rows), sum(r.calls for r in rows))
    for name, key in _BY.items():
        _table(paper, f"by {name}", speed.grouped(key), speed.total_ms)
    _precisions(paper, paces, declined)
    return paper


def _kinds(speed: Speed) -> list[tuple[str, list[TimingRow]]]:
    return [
        ("computing in half", speed.in_half),
        ("casts", speed.casts),
        ("FP32 under autocast", speed.kept_fp32),
        ("sizes no multiple of 8", speed.misaligned),
    ]


def _table(paper: Page, title: str, groups: list[Group], total: float) -> None:
    if not groups:
        return
    paper.blank()
    paper.say(title, style="bold")
    for name, ms, calls in groups[:_LINES]:
        _line(paper, name or "(root)", ms / total if total else 0.0, ms, calls)
    if rest := groups[_LINES:]:
        time = sum(ms for _, ms, _ in rest)
        _line(paper, f"and {len(rest)} more", time / total if total else 0.0, time, sum(n for *_, n in rest))


def _line(paper: Page, name: str, share: float, ms: float, calls: int) -> None:
    bar = "█" * round(share * _BAR)
    paper.line(f"{bar:<{_BAR}}  {percent(share):>7}  {ms:9.2f} ms  {calls:6d} x  {name}", indent=2)


def _precisions(paper: Page, paces: Mapping[str, PaceRow], declined: str | None) -> None:
    paper.blank()
    paper.say("forward and backward in other precisions", style="bold")
    if declined is not None:
        paper.say(f"Not measured: {declined}.", indent=2, style="dim")
    elif not paces:
        paper.say("Not measured: record with `ampdoctor run --prove`.", indent=2, style="dim")
    own = next((row for row in paces.values() if row.own), None)
    for name, row in paces.items():
        times = f"{row.wall_ms:9.2f} ms ({number(row.fastest_ms or 0.0)} to {number(row.slowest_ms or 0.0)})"
        paper.line(f"{SETTINGS.get(name, name):<14}{times}  {_beside(row, own)}".rstrip(), indent=2)


def _beside(row: PaceRow, own: PaceRow | None) -> str:
    if own is None or row is own:
        return "the run's own" if row is own else ""
    if not (surely_faster(row, own) or surely_faster(own, row)):
        return "no difference that is more than noise"
    return f"{number(times_as_fast(row, own))} times as fast as the run's own"
