"""Markdown for a comment on a pull request, or a job's summary: the result, a table, and the fixes folded away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ampdoctor.gate.result import FindingCheck
from ampdoctor.report.gated import (
    STATUS_TEXT,
    changes,
    headline,
    metric_title,
    shown_metrics,
    value_allowed,
    value_before,
    value_now,
)
from ampdoctor.report.layout import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampdoctor.engine import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.gate.result import GateResult

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "#": "&#35;"}
_SPECIAL = re.compile(r"[\\`*_\[\]|~]")
SITES_SHOWN = 3


def render(diagnosis: Diagnosis) -> str:
    """Return the verdict, a table of the findings, and how to mend each."""
    parts = [f"### ampdoctor: {escaped(diagnosis.verdict)}", escaped(diagnosis.precision.sentence)]
    rows = [(f.severity.value, _name(f), _sites(f), f.summary) for f in diagnosis.findings]
    parts.append(table(("", "finding", "where", "what"), rows))
    parts += [_details(finding) for finding in diagnosis.findings]
    parts += [f"Rule failed: {escaped(f'{rule.rule}: {rule.reason}')}" for rule in diagnosis.crashed]
    parts += [f"Accepted: {escaped(f'{i.finding.name}: {i.reason}')}" for i in diagnosis.ignored]
    parts += [f"Notice: {escaped(text)}" for text in (*diagnosis.examined.gaps, *diagnosis.notices)]
    return _joined(parts)


def render_gate(result: GateResult) -> str:
    """Return the result, tables of findings and metrics, what else changed, and how to mend what fails."""
    parts = [f"### ampdoctor check: {escaped(headline(result))}"]
    found = [
        (made.outcome.value, _name(made.finding), STATUS_TEXT[made.status], _sites(made.finding), made.finding.summary)
        for made in result.findings
    ]
    parts.append(table(("", "finding", "", "where", "what"), found))
    metrics = [
        (made.outcome.value, metric_title(made), value_before(made), value_now(made), value_allowed(made))
        for made in shown_metrics(result.metrics)
    ]
    parts.append(table(("", "metric", "baseline", "now", "allowed"), metrics))
    parts += [f"{title}: {escaped(text)}" for title, text in changes(result)]
    parts += [_details(made.finding) for made in result.failures if isinstance(made, FindingCheck)]
    return _joined(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; empty where it has no rows."""
    body = [f"| {' | '.join(escaped(cell) for cell in row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *body]) if body else ""


def escaped(text: str) -> str:
    """Return `text` such that Markdown and HTML show it as it is, on one line, and nobody is mentioned."""
    plain = "".join(_ENTITIES.get(c, c) for c in clean(text))
    return _SPECIAL.sub(r"\\\g<0>", plain)


def _name(finding: Finding) -> str:
    return f"{finding.name} ({finding.code})"


def _sites(finding: Finding) -> str:
    sites = finding.location.sites
    hidden = len(sites) - SITES_SHOWN
    named = ", ".join(sites[:SITES_SHOWN]) + (f" and {hidden} more" if hidden > 0 else "")
    return "; ".join(part for part in (finding.location.source or "", named) if part)


def _details(finding: Finding) -> str:
    """Return evidence and fixes of a finding, folded away."""
    lines = [f"<details><summary>{escaped(finding.name)}: evidence and fix</summary>", ""]
    lines += [f"- {escaped(evidence.text)} ({evidence.grade.value})" for evidence in finding.evidence]
    for fix in finding.fixes:
        lines += ["", f"**{escaped(fix.title)}** {escaped(fix.expected)}".rstrip()]
        if fix.code.strip():
            lines += ["", *_code(fix.code)]
    return "\n".join([*lines, "", "</details>"])


def _code(text: str) -> list[str]:
    """Return a block of code with a fence that is longer than any in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}python", *(clean(line) for line in text.strip("\n").splitlines()), fence]


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
