"""The result of a gate as a page: what fails with its fix, the metrics beside the baseline's, and what else changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.gate.result import Against, FindingCheck, Outcome
from ampdoctor.report.gated import (
    STATUS_TEXT,
    advice,
    changes,
    headline,
    metric_title,
    shown_metrics,
    value_allowed,
    value_before,
    value_now,
)
from ampdoctor.report.layout import PLAIN_WIDTH, Page, clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.gate.result import GateResult, MetricCheck


def page(result: GateResult, width: int = PLAIN_WIDTH) -> Page:
    """Return the result as a page of `width` columns."""
    paper = Page(width)
    paper.say(headline(result), style="bold green" if result.passed and not result.diagnosis.crashed else "bold red")
    paper.blank()
    paper.say(result.diagnosis.verdict, label="Verdict  ", label_style="bold")
    paper.say(result.diagnosis.run, label="Run      ", label_style="bold") if result.diagnosis.run else None
    _findings(paper, result.findings)
    _metrics(paper, [made for made in result.metrics if made.against is Against.BASELINE], "against the baseline")
    _metrics(paper, [made for made in result.metrics if made.against is Against.LIMIT], "against limits")
    paper.blank()
    for title, text in changes(result):
        paper.say(text, label=f"{title:11}", label_style="bold")
    return paper


def _findings(paper: Page, findings: Sequence[FindingCheck]) -> None:
    for made in findings:
        finding, failed = made.finding, made.outcome is Outcome.FAIL
        paper.blank()
        paper.say(
            finding.name,
            style="bold",
            label="FAIL  " if failed else f"{finding.severity.value}  ",
            label_style="bold red" if failed else "bold",
            tail=f"({finding.code}, {STATUS_TEXT[made.status]})",
        )
        paper.say(finding.summary, indent=2)
        if finding.location.source:
            paper.say(finding.location.source, indent=2, label="Line   ", label_style="bold")
        if failed and finding.fixes:
            paper.say(advice(finding), indent=2, label="Fix    ", label_style="bold green")
            paper.blank()
            paper.code(finding.fixes[0].code, indent=6)


def _metrics(paper: Page, made: Sequence[MetricCheck], title: str) -> None:
    rows = [_row(m) for m in shown_metrics(made)]
    if not rows:
        return
    paper.blank()
    head = ("", title, "baseline", "now", "allowed")
    table(paper, [head, *rows])


def _row(made: MetricCheck) -> tuple[str, ...]:
    mark = {Outcome.FAIL: "FAIL", Outcome.PASS: "ok", Outcome.NOT_MEASURED: "gone"}[made.outcome]
    return (mark, metric_title(made), value_before(made), value_now(made), value_allowed(made))


def table(paper: Page, rows: Sequence[Sequence[str]], *, words: int = 2) -> None:
    """Add a table whose first row is its head; the first `words` columns hold words, the others numbers."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    keep = [i for i in range(len(rows[0])) if i < words or any(row[i] != "-" for row in cleaned[1:])]
    widths = {i: max(len(row[i]) for row in cleaned) for i in keep}
    for number, row in enumerate(cleaned):
        cells = [row[i].ljust(widths[i]) if i < words else row[i].rjust(widths[i]) for i in keep]
        failed = row[0] == "FAIL"
        paper.line("  ".join(cells), style="bold" if number == 0 else "bold red" if failed else "")
