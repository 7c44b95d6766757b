"""The file of a baseline: small, stable, and refused with one line where it is none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.finding import Confidence, Finding, Grade, Severity
from ampdoctor.gate.baseline import VERSION, Baseline, baseline_of, read_baseline, text_of
from tests.unit.gate.runs import built, judged

if TYPE_CHECKING:
    from pathlib import Path

GOOD = baseline_of([judged(built(subnormal=n, flushed=n // 7).build()) for n in (10, 13)])
DOCUMENT: dict[str, Any] = json.loads(text_of(GOOD))


def test_the_file_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text_of(GOOD), encoding="utf-8")
    back = read_baseline(path)
    assert text_of(back) == text_of(GOOD)
    assert back.runs == 2
    assert back.made_on["torch"] == "2.13.0"


def test_one_site_is_one_line() -> None:
    one = text_of(GOOD).splitlines()
    other = text_of(baseline_of([judged(built(subnormal=n, flushed=n // 7).build()) for n in (10, 13)])).splitlines()
    assert one == other
    assert sum('"a.weight"' in line for line in one) == 2  # flushed and subnormal
    assert all(len(line) < 120 for line in one)


BAD: dict[str, tuple[str, str]] = {
    "missing": ("", "there is no baseline"),
    "empty file": (" ", "cannot read"),
    "no JSON": ("{", "cannot read"),
    "a list": ("[]", "is not a baseline"),
    "something else": ('{"name": "web"}', "is not a baseline"),
    "deep": ("[" * 100_000, "cannot read"),
    "no version": (json.dumps({**DOCUMENT, "schema_version": None}), "does not say which version"),
    "older than the first": (json.dumps({**DOCUMENT, "schema_version": 0}), "does not say which version"),
    "newer": (json.dumps({**DOCUMENT, "schema_version": VERSION + 1}), f"has version {VERSION + 1}"),
    "no metrics": (json.dumps({k: v for k, v in DOCUMENT.items() if k != "metrics"}), "is damaged"),
    "metrics of the wrong type": (json.dumps({**DOCUMENT, "metrics": 5}), "is damaged"),
    "a band of words": (json.dumps({**DOCUMENT, "metrics": {"flushed": ["a", "b", "measured"]}}), "is damaged"),
    "a band that is cut": (json.dumps({**DOCUMENT, "metrics": {"flushed": [0.1]}}), "is damaged"),
    "a band upside down": (json.dumps({**DOCUMENT, "metrics": {"flushed": [0.2, 0.1, "measured"]}}), "is damaged"),
    "a band of NaN": (text_of(GOOD).replace('"skipped": [0, 0', '"skipped": [NaN, NaN'), "is damaged"),
    "an unknown grade": (json.dumps({**DOCUMENT, "metrics": {"flushed": [0, 0, "guessed"]}}), "is damaged"),
    "no runs": (json.dumps({**DOCUMENT, "runs": "many"}), "is damaged"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_baseline_is_refused(tmp_path: Path, case: str) -> None:
    text, message = BAD[case]
    path = tmp_path / "baseline.json"
    if text:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(AmpDoctorError, match=message) as caught:
        read_baseline(path)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_metrics_of_later_versions_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({**DOCUMENT, "metrics": {**DOCUMENT["metrics"], "new": "x"}, "more": 1}))
    assert read_baseline(path).bands == read_baseline_of(DOCUMENT, tmp_path).bands


def read_baseline_of(document: dict[str, Any], folder: Path) -> Baseline:
    (folder / "other.json").write_text(json.dumps(document))
    return read_baseline(folder / "other.json")


def test_nothing_measured_is_empty() -> None:
    assert baseline_of([]).empty
    assert not GOOD.empty


@pytest.mark.parametrize("order", [(Severity.ERROR, Severity.WARNING), (Severity.WARNING, Severity.ERROR)])
def test_of_a_finding_that_runs_have_more_or_less_badly_the_worst_is_kept(order: tuple[Severity, ...]) -> None:
    run, diagnosis = judged(built(flushed=90).build())
    found = Finding("AMP101", "gradient-underflow", Severity.ERROR, "It is so.", Confidence.HIGH, Grade.MEASURED)
    runs = [(run, replace(diagnosis, findings=(replace(found, severity=severity),))) for severity in order]
    (known,) = baseline_of(runs).findings.values()
    assert known.severity is Severity.ERROR
