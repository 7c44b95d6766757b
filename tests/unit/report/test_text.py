"""What a person reads, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ampdoctor.engine import Examined
from ampdoctor.finding import Confidence, Location
from ampdoctor.report.layout import PLAIN_WIDTH
from ampdoctor.report.text import SITES_SHOWN, page, render
from tests.unit.report.diagnoses import ALL, CODE, COLLAPSED, DIFF, HEALTHY, NOTE, SITES, SOURCE, UNDERFLOW, UNTIDY

if TYPE_CHECKING:
    from ampdoctor.engine import Diagnosis

WIDTHS = [30, 40, 80, 100, 250]


def _positions(text: str, *parts: str) -> list[int]:
    positions = [text.find(part) for part in parts]
    assert -1 not in positions, dict(zip(parts, positions, strict=True))
    return positions


def test_the_verdict_is_the_first_line() -> None:
    assert render(COLLAPSED).splitlines()[0] == COLLAPSED.verdict


def test_a_finding_reads_from_cause_to_cure_to_consequence() -> None:
    order = _positions(
        render(COLLAPSED),
        COLLAPSED.verdict,
        "Precision",
        "ERROR  gradient-underflow (AMP001)",
        UNDERFLOW.summary,
        UNDERFLOW.evidence[0].text,
        "Where  ",
        "Fix 1: Scale the loss",
        "Fix 2: Use BF16",
        "follows: lost-updates: 2 %",
        "NOTE  harmless (AMP030",
        "Nothing found  loss-scale-too-small",
    )
    assert order == sorted(order)


def test_what_the_verdict_tells_is_not_told_twice() -> None:
    summary = UNDERFLOW.summary.rstrip(".")
    told = replace(COLLAPSED, verdict=f"{summary} (gradient-underflow)")
    assert " ".join(render(told).split()).count(summary) == 1
    assert " ".join(render(COLLAPSED).split()).count(summary) == 1


def test_every_sentence_of_evidence_has_its_grade() -> None:
    text = render(COLLAPSED)
    for evidence in UNDERFLOW.evidence:
        assert f"- {evidence.text} ({evidence.grade.value})" in text


def test_what_a_fix_is_expected_to_do_has_its_grade() -> None:
    text = render(COLLAPSED)
    for fix in UNDERFLOW.fixes:
        assert f"{fix.expected} ({fix.grade.value})" in text


def test_a_single_fix_is_not_numbered() -> None:
    finding = replace(UNDERFLOW, fixes=UNDERFLOW.fixes[:1])
    assert "Fix: Scale the loss" in render(replace(COLLAPSED, findings=(finding,)))


def test_doubt_is_said_and_certainty_is_not() -> None:
    doubtful = replace(UNDERFLOW, confidence=Confidence.LOW)
    assert "(AMP001, low confidence)" in render(replace(COLLAPSED, findings=(doubtful,)))
    assert "high confidence" not in render(COLLAPSED)


@pytest.mark.parametrize("width", WIDTHS)
def test_code_and_paths_are_left_whole(width: int) -> None:
    lines = page(COLLAPSED, width).plain().splitlines()
    for line in (*CODE.splitlines(), *DIFF.splitlines()):
        assert any(shown.strip() == line for shown in lines), line
    assert any(SOURCE in line for line in lines)
    assert any(SITES[0] in line for line in lines)


@pytest.mark.parametrize("width", [width for width in WIDTHS if width >= 40])
@pytest.mark.parametrize("name", ALL)
def test_only_what_cannot_be_broken_is_wider_than_the_page(name: str, width: int) -> None:
    whole = {*CODE.splitlines(), *DIFF.splitlines(), SOURCE, *SITES, HEALTHY.run}
    for line in page(ALL[name], width).plain().splitlines():
        if len(line) > width:
            assert any(part and part in line for part in whole), line


@pytest.mark.parametrize("name", ALL)
def test_plain_text_is_plain(name: str) -> None:
    text = render(ALL[name])
    assert "\x1b" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "\n\n\n" not in text


def test_many_sites_are_counted_and_few_are_named() -> None:
    text = render(COLLAPSED)
    assert f"{SITES[SITES_SHOWN - 1]} and {len(SITES) - SITES_SHOWN} more" in text
    assert SITES[SITES_SHOWN] not in text


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (Location(first_step=7), "When   step 7\n"),
        (Location(first_step=7, last_step=7), "When   step 7\n"),
        (Location(first_step=7, last_step=9), "When   steps 7 to 9\n"),
        (Location(first_step=7, ranks=(3,)), "When   step 7, rank 3\n"),
        (Location(ranks=(0, 3)), "When   ranks 0, 3\n"),
    ],
)
def test_when_it_was_seen(location: Location, words: str) -> None:
    finding = replace(UNDERFLOW, location=location)
    assert words in render(replace(COLLAPSED, findings=(finding,)))


def test_a_finding_without_a_place_has_no_place() -> None:
    text = render(replace(COLLAPSED, findings=(NOTE,)))
    assert not any(label in text for label in ("Where", "When", "Line", "Fix"))


def test_a_healthy_run_says_what_was_looked_for() -> None:
    text = render(HEALTHY)
    assert "60 steps, 12 of them examined: 1834 tensors in 41 modules" in text
    assert "Nothing found  gradient-underflow, loss-scale-too-small, scale-collapse" in text


def test_what_was_not_examined_is_never_silent() -> None:
    text = render(UNTIDY)
    assert "RULE FAILED    scale-hunting (ValueError: no such scale)" in text
    assert "Not examined   lost-updates (not recorded: tensors.unchanged)" in text
    assert "the run was cut: its process was killed" in text
    assert "Accepted       harmless: Fine. Reason: we know, see issue 12" in text


def _with_summary(summary: str) -> Diagnosis:
    return replace(COLLAPSED, findings=(replace(UNDERFLOW, summary=summary),))


@pytest.mark.parametrize("hostile", ["\x1b[2J\x1b[31mred", "a\rb", "a\x00b", "a\u202eb", "a\x9b31mb"])
def test_what_a_trace_holds_cannot_drive_the_terminal(hostile: str) -> None:
    text = render(_with_summary(hostile))
    assert all(c.isprintable() or c == "\n" for c in text)


def test_line_feeds_in_a_sentence_do_not_break_the_layout() -> None:
    assert "  one two\n" in render(_with_summary("one\ntwo"))


def test_plain_text_has_one_width() -> None:
    long = " ".join(["word"] * 200)
    lines = render(_with_summary(long)).splitlines()
    assert max(len(line) for line in lines if line.startswith("  word")) <= PLAIN_WIDTH


def test_a_run_without_a_completed_step_says_so() -> None:
    stepless = replace(HEALTHY, examined=Examined(steps=0, examined_steps=0, tensors=8, modules=5))
    assert "Recorded   no step was completed; 8 tensors in 5 modules" in render(stepless)


def test_what_is_to_be_known_of_the_settings_is_a_notice() -> None:
    assert "\nNotice         An entry" in render(replace(HEALTHY, notices=("An entry matched nothing.",)))
