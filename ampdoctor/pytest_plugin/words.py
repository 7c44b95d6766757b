"""Why a test fails, for somebody who has never heard of what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import counted
from ampdoctor.gate.result import FindingCheck
from ampdoctor.report.gated import metric_title
from ampdoctor.report.layout import Page, joined

if TYPE_CHECKING:
    from ampdoctor.finding import Finding
    from ampdoctor.gate.result import GateResult, MetricCheck

_SITES = 4
"""Sites that a finding names; the trace has all of them."""

_NUMBERS = 10
"""Numbers that are told one by one."""

_EVIDENCE = 4
"""Sentences of evidence that are told of a finding, the decisive ones first."""


def complaint_of(result: GateResult) -> str:
    """Return why the run does not pass, with what was found and what to change; empty where it passes."""
    if result.passed:
        return ""
    page = Page()
    findings = [made.finding for made in result.failures if isinstance(made, FindingCheck)]
    numbers = [made for made in result.failures if not isinstance(made, FindingCheck)]
    for made in numbers[:_NUMBERS]:
        _number(page, made)
    if len(numbers) > _NUMBERS:
        page.say(f"and {len(numbers) - _NUMBERS} more")
    _why(page, findings, result)
    for warning in result.warnings:
        page.blank()
        page.say(warning, label="Notice: ")
    return page.plain().rstrip("\n")


def _why(page: Page, failing: list[Finding], result: GateResult) -> None:
    """Tell the findings that fail the test, or those that may explain why a number does."""
    shown = failing or list(result.diagnosis.faults)
    if not shown:
        page.blank()
        page.say(f"No rule has found a cause. {result.diagnosis.precision.sentence}")
    for finding in shown:
        page.blank()
        _finding(page, finding)


def _number(page: Page, made: MetricCheck) -> None:
    grade = f"({made.reading.grade.value})" if made.reading is not None else ""
    page.say(made.why, label=f"{metric_title(made)}: ", hang=2, tail=grade)


def _finding(page: Page, finding: Finding) -> None:
    page.say(finding.summary, label=f"{finding.severity.value} {finding.name} ({finding.code}): ", hang=2)
    for evidence in finding.evidence[:_EVIDENCE]:
        page.say(evidence.text, indent=2, label="- ", tail=f"({evidence.grade.value})")
    hidden = len(finding.evidence) - _EVIDENCE
    if hidden > 0:
        page.say(f"and {counted(hidden, 'further number')} in the trace", indent=2, label="- ")
    sites = finding.location.sites
    if sites:
        more = f" and {len(sites) - _SITES} more" if len(sites) > _SITES else ""
        page.say(", ".join(map(joined, sites[:_SITES])) + more, indent=2, label="Where: ")
    if finding.location.source:
        page.say(joined(finding.location.source), indent=2, label="Line:  ")
    for fix in finding.fixes[:1]:
        page.say(fix.title, indent=2, label="Fix:   ")
        page.code(fix.code, indent=9)
    page.say(f"More:  ampdoctor explain {finding.name}", indent=2)
