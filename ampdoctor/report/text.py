"""The diagnosis for people: the verdict, then each cause with its evidence and fix, then what was examined.

The result of a gate for people is a page of its own (`gate_page`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.wording import counted
from ampdoctor.finding import Confidence, Severity
from ampdoctor.report import gate_page
from ampdoctor.report.layout import PLAIN_WIDTH, Page, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.engine import Diagnosis, Examined
    from ampdoctor.finding import Finding, Fix, Location
    from ampdoctor.gate.result import GateResult

SITES_SHOWN = 4
"""Sites named in a finding; the rest are counted, and all are in the JSON."""

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold blue"}
"""Style of each severity, also for the live lines."""


_ELBOW = "\N{BOX DRAWINGS LIGHT UP AND RIGHT}"


def render(diagnosis: Diagnosis) -> str:
    """Return the report as plain text."""
    return page(diagnosis).plain()


def render_gate(result: GateResult) -> str:
    """Return the result of a gate as plain text."""
    return gate_page.page(result).plain()


def page(diagnosis: Diagnosis, width: int = PLAIN_WIDTH) -> Page:
    """Return the report as a page of `width` columns."""
    paper = Page(width)
    _head(paper, diagnosis)
    for finding in diagnosis.findings:
        paper.blank()
        _finding(paper, finding, told=finding.summary.rstrip(".") in diagnosis.verdict)
    paper.blank()
    _foot(paper, diagnosis)
    return paper


def _head(paper: Page, diagnosis: Diagnosis) -> None:
    worst = min((f.severity for f in diagnosis.faults), key=lambda s: s.rank, default=None)
    paper.say(diagnosis.verdict, style=STYLES[worst] if worst else "bold green")
    paper.blank()
    paper.say(diagnosis.precision.sentence, label="Precision  ", label_style="bold")
    paper.say(_extent(diagnosis.examined), label="Recorded   ", label_style="bold")
    if diagnosis.run:
        paper.say(joined(diagnosis.run), label="Run        ", label_style="bold")


def _extent(examined: Examined) -> str:
    tensors = f"{counted(examined.tensors, 'tensor')} in {counted(examined.modules, 'module')}"
    if not examined.steps:
        return f"no step was completed; {tensors}"
    return f"{counted(examined.steps, 'step')}, {examined.examined_steps} of them examined: {tensors}"


def _finding(paper: Page, finding: Finding, *, told: bool) -> None:
    """Add a finding; its summary is left out where the verdict has just told it."""
    doubt = "" if finding.confidence is Confidence.HIGH else f", {finding.confidence.value} confidence"
    paper.say(
        finding.name,
        style="bold",
        label=f"{finding.severity.value.upper()}  ",
        label_style=STYLES[finding.severity],
        tail=f"({finding.code}{doubt})",
    )
    if not told:
        paper.say(finding.summary, indent=2)
        paper.blank()
    for evidence in finding.evidence:
        paper.say(evidence.text, indent=2, label="- ", tail=f"({evidence.grade.value})")
    paper.blank()
    _location(paper, finding.location)
    for rank, fix in enumerate(finding.fixes, 1):
        paper.blank()
        _fix(paper, fix, f"Fix {rank}: " if len(finding.fixes) > 1 else "Fix: ")
    paper.blank()
    for consequence in finding.consequences:
        paper.say(consequence.summary, indent=2, label=f"{_ELBOW} follows: {consequence.name}: ", hang=2)


def _location(paper: Page, location: Location) -> None:
    sites = [joined(site) for site in location.sites[:SITES_SHOWN]]
    hidden = len(location.sites) - len(sites)
    if sites:
        more = " " + joined(f"and {hidden} more") if hidden else ""
        paper.say(", ".join(sites) + more, indent=2, label="Where  ", label_style="bold")
    when = ", ".join(part for part in (_steps(location), _ranks(location)) if part)
    if when:
        paper.say(when, indent=2, label="When   ", label_style="bold")
    if location.source:
        paper.say(joined(location.source), indent=2, label="Line   ", label_style="bold")


def _steps(location: Location) -> str:
    first, last = location.first_step, location.last_step
    if first is None:
        return ""
    return f"step {first}" if last is None or last == first else f"steps {first} to {last}"


def _ranks(location: Location) -> str:
    if location.ranks in ((), (0,)):
        return ""
    return ("rank " if len(location.ranks) == 1 else "ranks ") + ", ".join(map(str, location.ranks))


def _fix(paper: Page, fix: Fix, label: str) -> None:
    paper.say(fix.title, indent=2, style="bold", label=label, label_style="bold green", hang=2)
    if fix.expected:
        paper.say(fix.expected, indent=4, tail=f"({fix.grade.value})")
    if fix.code.strip():
        paper.blank()
        paper.code(fix.code, indent=6)


def _foot(paper: Page, diagnosis: Diagnosis) -> None:
    if diagnosis.crashed:
        failed = [f"{rule.rule} ({rule.reason})" for rule in diagnosis.crashed]
        _list(paper, "RULE FAILED", failed, label_style="bold red")
        paper.say("A failed rule is a defect of ampdoctor, and says nothing about your run: please report it.")
        paper.blank()
    accepted = [f"{i.finding.name}: {i.finding.summary} Reason: {i.reason}" for i in diagnosis.ignored]
    _list(paper, "Accepted", accepted)
    _list(paper, "Nothing found", [", ".join(diagnosis.passed)] if diagnosis.passed else [])
    _list(paper, "Not examined", _skipped(diagnosis))
    _list(paper, "Incomplete", diagnosis.examined.gaps)
    _list(paper, "Notice", diagnosis.notices)


def _skipped(diagnosis: Diagnosis) -> list[str]:
    """Return the skipped rules by why they were: of a run without a scaler, a dozen lack the same."""
    by_reason: dict[str, list[str]] = {}
    for rule in diagnosis.skipped:
        by_reason.setdefault(rule.reason, []).append(rule.rule)
    return [f"{', '.join(rules)} ({reason})" for reason, rules in by_reason.items()]


def _list(paper: Page, title: str, entries: Sequence[str], *, label_style: str = "bold") -> None:
    for number, entry in enumerate(entries):
        paper.say(entry, label=f"{title if number == 0 else '':15}", label_style=label_style)
