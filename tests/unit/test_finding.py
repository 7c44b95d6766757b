"""Severities sort, and a fingerprint names the fault and not its numbers."""

from __future__ import annotations

from dataclasses import replace

from ampdoctor.finding import Confidence, Evidence, Finding, Grade, Location, Severity

FOUND = Finding(
    "AMP101",
    "gradient-underflow",
    Severity.ERROR,
    "Gradients vanish.",
    Confidence.HIGH,
    Grade.OBSERVED,
    Location(("head.out", "body.out"), 0, 9, source="train.py:42"),
)


def test_the_worst_severity_ranks_first() -> None:
    assert sorted(Severity, key=lambda s: s.rank) == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


def test_the_fingerprint_leaves_out_steps_values_and_the_order_of_sites() -> None:
    later = replace(
        FOUND,
        severity=Severity.NOTE,
        summary="Gradients vanish again.",
        location=Location(("body.out", "head.out"), 50, 90, source="train.py:42"),
        evidence=(Evidence("flushed_share", 0.5, "Half."),),
    )
    assert later.fingerprint == FOUND.fingerprint


def test_the_fingerprint_holds_rule_sites_and_source() -> None:
    others = [
        replace(FOUND, name="lost-updates"),
        replace(FOUND, location=replace(FOUND.location, sites=("head.out",))),
        replace(FOUND, location=replace(FOUND.location, source="train.py:43")),
    ]
    assert FOUND.fingerprint not in {other.fingerprint for other in others}
