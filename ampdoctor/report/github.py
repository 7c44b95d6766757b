"""Annotations of GitHub Actions: a line for each finding, which GitHub shows at the line of code it is about.

A failed check of a gate is an error there. Whatever a trace holds is escaped, so that it can't give commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Severity
from ampdoctor.gate.readings import WHOLE
from ampdoctor.gate.result import Outcome
from ampdoctor.report.gated import FAILURES_SHOWN, STATUS_TEXT, advice, changes, headline, metric_title
from ampdoctor.report.places import place_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.engine import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.gate.result import GateResult, MetricCheck
    from ampdoctor.report.places import Place

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(diagnosis: Diagnosis) -> str:
    """Return the verdict and every finding, one annotation a line."""
    lines = [_annotation("notice", "ampdoctor", diagnosis.verdict)]
    lines += [_finding(_LEVELS[finding.severity], finding, diagnosis) for finding in diagnosis.findings]
    lines += [_annotation("error", f"rule {rule.rule} failed", rule.reason) for rule in diagnosis.crashed]
    return "\n".join(lines) + "\n"


def render_gate(result: GateResult) -> str:
    """Return the result, what fails, and what else was found, one annotation a line."""
    lines = [_annotation("notice" if result.passed else "error", "ampdoctor check", headline(result))]
    for made in result.findings:
        quiet = "notice" if made.finding.severity is Severity.NOTE else "warning"
        level = "error" if made.outcome is Outcome.FAIL else quiet
        lines.append(_finding(level, made.finding, result.diagnosis, STATUS_TEXT[made.status]))
    lines += _metrics([made for made in result.metrics if made.outcome is Outcome.FAIL], result.diagnosis)
    lines += [
        _annotation("warning" if title == "Warning" else "notice", title, text) for title, text in changes(result)
    ]
    return "\n".join(lines) + "\n"


def _metrics(failed: Sequence[MetricCheck], diagnosis: Diagnosis) -> Iterator[str]:
    """Return one for each failure of the run as a whole, and one for all sites: GitHub shows few of a kind."""
    where = _where(place_in(diagnosis))
    for made in failed:
        if made.site == WHOLE:
            yield _annotation("error", metric_title(made), made.why, **where)
    sites = [made for made in failed if made.site != WHOLE]
    if sites:
        told = [f"{metric_title(made)}: {made.why}" for made in sites[:FAILURES_SHOWN]]
        yield _annotation("error", counted(len(sites), "site fails", "sites fail"), "\n".join(told), **where)


def _finding(level: str, finding: Finding, diagnosis: Diagnosis, status: str = "") -> str:
    told = [finding.summary, *(f"- {evidence.text}" for evidence in finding.evidence)]
    if finding.location.sites:
        told.append("Where: " + ", ".join(finding.location.sites[:4]))
    if finding.fixes:
        told += [f"Fix: {advice(finding)}", finding.fixes[0].code.strip("\n")]
    title = f"{finding.name} ({finding.code}{', ' + status if status else ''})"
    where = _where(place_in(diagnosis, finding.location))
    return _annotation(level, title, "\n".join(line for line in told if line), **where)


def _where(place: Place | None) -> dict[str, str]:
    return {"file": place.file, "line": str(place.line)} if place else {}


def _annotation(level: str, title: str, message: str, **where: str) -> str:
    properties = ",".join(f"{name}={_property(value)}" for name, value in {**where, "title": title}.items())
    return f"::{level} {properties}::{_data(message)}"


def _data(text: str) -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(c if c.isprintable() else " " for c in escaped)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
