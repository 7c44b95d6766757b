"""What trackers show of a finding."""

from __future__ import annotations

from dataclasses import replace

from ampdoctor.finding import Location
from ampdoctor.sinks.wording import SITES_SHOWN, fenced, key, markdown
from tests.unit.report.diagnoses import LOST, UNDERFLOW


def test_two_lines_of_one_rule_are_told_apart() -> None:
    assert key(LOST) == "lost-updates"
    assert key(replace(LOST, location=Location(source="src/train.py:9"))) == "lost-updates.train.py.9"


def test_a_page_holds_all_there_is_to_know() -> None:
    page = markdown(UNDERFLOW)
    assert page.startswith("**ERROR gradient-underflow** (AMP001, high confidence): ")
    for evidence in UNDERFLOW.evidence:
        assert f"- {evidence.text} ({evidence.grade.value})" in page
    for fix in UNDERFLOW.fixes:
        assert f"Fix: {fix.title}. {fix.expected} ({fix.grade.value})" in page
        assert fenced(fix.code, "python") in page
    assert f"`{UNDERFLOW.location.sites[0]}`" in page
    assert f"and {len(UNDERFLOW.location.sites) - SITES_SHOWN} more; step 0 to 59; line `" in page
    assert f"Follows: WARNING lost-updates: {LOST.summary}" in page


def test_a_finding_without_a_place_has_no_empty_one() -> None:
    page = markdown(LOST)
    assert "step" not in page
    assert ";" not in page
