"""Every rule that there is, by its own examples: silent on HEALTHY, heard on SICK, skipped without its columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ampdoctor.engine import diagnose
from ampdoctor.errors import ConfigError, UnknownRuleError
from ampdoctor.finding import Severity
from ampdoctor.rules import discover, find_rule
from ampdoctor.rules.base import Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from ampdoctor.rules.base import Example

RULES = discover()
HEADINGS = ["What it means", "Why it matters", "How to fix", "Not to be mistaken for"]
NAMED_BY_RULES = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*$")


def _examples(kind: str) -> list[object]:
    return [
        pytest.param(rule, example, id=f"{rule.name}: {example.title}")
        for rule in RULES
        for example in getattr(rule, kind)
    ]


@pytest.mark.parametrize(("rule", "example"), _examples("HEALTHY"))
def test_a_healthy_run_brings_no_finding(rule: type[Rule], example: Example) -> None:
    run = example.build().build()
    assert rule().lacks(run) == []
    faults = [f for f in rule().check(run) if f.severity is not Severity.NOTE]
    assert faults == []


@pytest.mark.parametrize(("rule", "example"), _examples("SICK"))
def test_a_sick_run_brings_one_finding_with_evidence_and_fix(rule: type[Rule], example: Example) -> None:
    run = example.build().build()
    assert rule().lacks(run) == []
    (finding,) = rule().check(run)
    assert (finding.code, finding.name) == (rule.code, rule.name)
    assert finding.severity is not Severity.NOTE or rule.severity is Severity.NOTE
    assert finding.summary.endswith(".")
    assert finding.evidence
    assert finding.fixes
    assert all(fix.code.strip() and fix.expected.strip() for fix in finding.fixes)
    assert finding.location.first_step is not None


@pytest.mark.parametrize(("rule", "example"), _examples("SICK"))
def test_evidence_is_named_numbers(rule: type[Rule], example: Example) -> None:
    (finding,) = rule().check(example.build().build())
    names = [e.name for e in finding.evidence]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)
    assert all(e.text.endswith(".") and len(e.text) < 250 for e in finding.evidence)
    # A sentence without a number or a name in it is an opinion.
    assert all(re.search(r"\d|`", e.text) for e in finding.evidence)


@pytest.mark.parametrize(("rule", "example"), _examples("SICK"))
def test_the_whole_engine_tells_the_same_cause_first(rule: type[Rule], example: Example) -> None:
    diagnosis = diagnose(example.build().build())
    assert diagnosis.crashed == ()
    first = diagnosis.findings[0]
    explained = {c.name for c in first.consequences} if first.name in rule.after else set()
    assert rule.name in {first.name, *explained}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_without_its_columns_is_skipped_and_not_passed(rule: type[Rule]) -> None:
    without_step = diagnose(RunBuilder().build(), rules=[rule()])
    assert [(s.rule, s.reason) for s in without_step.skipped] == [(rule.name, "no step was completed")]
    # A step, and nothing else: no loss, no tensor, no call, no scaler.
    needs = [need for need in rule.needs if need != "steps"]
    diagnosis = diagnose(RunBuilder().step().build(), rules=[rule()])
    assert [s.rule for s in diagnosis.skipped] == ([rule.name] if needs else [])
    assert all(need in diagnosis.skipped[0].reason for need in needs)
    assert bool(diagnosis.passed) is not bool(needs)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_is_documented(rule: type[Rule]) -> None:
    page = (rule.__doc__ or "").splitlines()
    assert page[0].endswith(".")
    assert [line.strip() for line in page if line.strip() in HEADINGS] == HEADINGS
    assert len(rule.HEALTHY) >= 2
    assert len(rule.SICK) >= 2
    assert all(threshold.source for threshold in rule.thresholds.values())


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_every_threshold_is_read(rule: type[Rule], monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    value = Rule.threshold

    def watched(self: Rule, name: str) -> float:
        read.add(name)
        return value(self, name)

    monkeypatch.setattr(Rule, "threshold", watched)
    for other in RULES:
        for example in (*other.HEALTHY, *other.SICK):
            run = example.build().build()
            if not rule().lacks(run):
                list(rule().check(run))
    assert read == set(rule.thresholds)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_is_called_like_its_file(rule: type[Rule]) -> None:
    assert rule.__module__.rpartition(".")[2] == rule.name.replace("-", "_")
    assert re.fullmatch(r"AMP[1-7]\d\d", rule.code)
    assert NAMED_BY_RULES.match(rule.name)
    assert rule.name not in rule.after


def test_no_rule_explains_away_what_explains_it() -> None:
    """In a circle the root would be decided by the order of codes."""
    after = {rule.name: rule.after for rule in RULES}
    open_ends = {name for names in after.values() for name in names} - set(after)
    assert open_ends == set()
    left = dict(after)
    while free := [name for name, above in left.items() if not set(above) & set(left)]:
        for name in free:
            del left[name]
    assert left == {}


def test_rules_come_in_the_order_of_their_codes() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(codes)
    assert len(set(codes)) == len(codes)


def test_a_rule_is_found_by_slug_and_by_code() -> None:
    assert find_rule("gradient-underflow") is find_rule("amp101")
    with pytest.raises(UnknownRuleError) as caught:
        find_rule("gradient-overflow")
    assert "gradient-underflow" in caught.value.hint


def test_a_threshold_can_be_moved_and_a_wrong_one_is_told() -> None:
    rule = find_rule("scale-hunting")
    assert rule({"rounds": 7.0}).threshold("rounds") == 7.0
    with pytest.raises(ConfigError) as caught:
        rule({"round": 7.0})
    assert "rounds" in caught.value.hint


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_no_rule_speaks_of_what_has_not_happened(rule: type[Rule]) -> None:
    # A step, and nothing else: no tensor, no call, no scaler.
    assert list(rule().check(RunBuilder().step(loss=1.0).build())) == []
