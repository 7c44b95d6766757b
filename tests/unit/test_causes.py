"""Consequences are folded under the first cause that was there in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.causes import root_findings
from ampdoctor.finding import Confidence, Finding, Grade, Location, Severity
from ampdoctor.rules.base import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


class _Silent(Rule):
    severity = Severity.ERROR
    needs = ()
    HEALTHY = SICK = ()

    def check(self, run: Run) -> Iterator[Finding]:
        return iter(())


class Overflow(_Silent):
    code, name = "AMP901", "overflow"


class Collapse(_Silent):
    code, name, after = "AMP902", "collapse", ("overflow",)


class Stuck(_Silent):
    code, name, after = "AMP903", "stuck", ("collapse",)


class Loop(_Silent):
    code, name, after = "AMP904", "loop", ("knot",)


class Knot(_Silent):
    code, name, after = "AMP905", "knot", ("loop",)


RULES = [Overflow(), Collapse(), Stuck(), Loop(), Knot()]


def _found(rule: type[Rule], step: int | None = 0, severity: Severity = Severity.ERROR) -> Finding:
    location = Location(first_step=step)
    return Finding(rule.code, rule.name, severity, "Bad.", Confidence.HIGH, Grade.OBSERVED, location)


def _names(findings: tuple[Finding, ...]) -> list[tuple[str, list[str]]]:
    return [(f.name, [c.name for c in f.consequences]) for f in findings]


def test_a_chain_ends_at_its_first_cause() -> None:
    findings = [_found(Stuck), _found(Collapse), _found(Overflow)]
    assert _names(root_findings(findings, RULES)) == [("overflow", ["collapse", "stuck"])]


def test_without_its_cause_a_consequence_is_a_root() -> None:
    assert _names(root_findings([_found(Collapse)], RULES)) == [("collapse", [])]


def test_what_came_later_is_no_cause() -> None:
    findings = [_found(Collapse, 3), _found(Overflow, 40)]
    assert _names(root_findings(findings, RULES)) == [("collapse", []), ("overflow", [])]


def test_a_cause_is_seen_on_the_next_examined_step_at_the_latest() -> None:
    findings = [_found(Collapse, 30), _found(Overflow, 31)]
    assert len(root_findings(findings, RULES)) == 2
    assert len(root_findings(findings, RULES, examined=[0, 16, 31, 32])) == 1


def test_a_note_explains_no_error() -> None:
    findings = [_found(Collapse), _found(Overflow, severity=Severity.NOTE)]
    assert _names(root_findings(findings, RULES)) == [("collapse", []), ("overflow", [])]


def test_a_finding_without_a_step_was_there_from_the_start() -> None:
    findings = [_found(Collapse, 5), _found(Overflow, None)]
    assert _names(root_findings(findings, RULES)) == [("overflow", ["collapse"])]


def test_two_rules_that_explain_each_other_lose_no_finding() -> None:
    told = root_findings([_found(Loop), _found(Knot)], RULES)
    assert {f.name for f in told} | {c.name for f in told for c in f.consequences} == {"loop", "knot"}


def test_the_worst_and_earliest_comes_first() -> None:
    findings = [_found(Stuck, 9), _found(Loop, 5, Severity.WARNING), _found(Overflow, 3)]
    assert [f.name for f in root_findings(findings, RULES)] == ["overflow", "stuck", "loop"]


def test_what_begins_on_a_harmed_step_is_looked_for_on_harmed_steps() -> None:
    findings = [_found(Collapse, 25), _found(Overflow, 30)]
    examined = [0, 26, 27, 30, 35]
    assert len(root_findings(findings, RULES, examined)) == 2
    assert _names(root_findings(findings, RULES, examined, harmed={25, 30, 35})) == [("overflow", ["collapse"])]
    # 25 was no such step: what is to be seen of it is seen on the next.
    assert len(root_findings(findings, RULES, examined, harmed={30, 35})) == 2
    assert len(root_findings(findings, RULES, [0, 26, 35], harmed={25, 26, 30, 35})) == 2
