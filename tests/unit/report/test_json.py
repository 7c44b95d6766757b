"""The JSON report: its keys are a contract, and it is JSON whatever the numbers are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ampdoctor.finding import Evidence
from ampdoctor.report.json import SCHEMA_VERSION, render
from tests.unit.report.diagnoses import ALL, COLLAPSED, LOST, NOTE, SITES, UNDERFLOW, UNTIDY


def _not_json(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_not_json)


@pytest.mark.parametrize("name", ALL)
def test_the_document_has_the_documented_keys(name: str) -> None:
    document = _parsed(render(ALL[name]))
    assert document["schema_version"] == SCHEMA_VERSION
    assert list(document) == [
        "schema_version", "run", "verdict", "precision", "findings", "passed", "skipped", "crashed",
        "ignored", "examined", "notices",
    ]  # fmt: skip
    assert document["run"] == ALL[name].run
    assert document["verdict"] == ALL[name].verdict


def test_a_finding_has_the_documented_keys() -> None:
    finding = _parsed(render(COLLAPSED))["findings"][0]
    assert list(finding) == [
        "code", "name", "severity", "confidence", "grade", "summary", "fingerprint", "location",
        "evidence", "fixes", "consequences",
    ]  # fmt: skip
    assert finding["severity"] == "error"
    assert finding["grade"] == "estimated"
    assert finding["fingerprint"] == UNDERFLOW.fingerprint
    assert finding["location"]["sites"] == list(SITES)
    assert finding["evidence"][0] == {
        "name": "flushed_share",
        "value": 0.61,
        "text": "61.2 % of the elements are lost.",
        "grade": "estimated",
    }
    assert [fix["title"] for fix in finding["fixes"]] == [fix.title for fix in UNDERFLOW.fixes]
    assert [c["name"] for c in finding["consequences"]] == [LOST.name]


def test_rules_that_said_nothing_are_there_with_their_reasons() -> None:
    document = _parsed(render(UNTIDY))
    assert document["skipped"] == [{"rule": "lost-updates", "reason": "not recorded: tensors.unchanged"}]
    assert document["crashed"] == [{"rule": "scale-hunting", "reason": "ValueError: no such scale"}]
    assert document["ignored"][0]["reason"] == "we know, see issue 12"
    assert document["ignored"][0]["name"] == NOTE.name
    assert document["examined"]["gaps"] == ["the run was cut: its process was killed"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (5e-324, 5e-324),
        (True, True),
        (2**70, 2**70),
        ("fp16 \u00e9 \x00 \ud800".replace("\ud800", ""), "fp16 \u00e9 \x00 "),
    ],
)
def test_every_value_is_json(value: float | str, written: float | str) -> None:
    finding = replace(UNDERFLOW, evidence=(Evidence("x", value, "x"),))
    document = _parsed(render(replace(COLLAPSED, findings=(finding,))))
    assert document["findings"][0]["evidence"][0]["value"] == written


@pytest.mark.parametrize("name", ALL)
def test_equal_diagnoses_give_equal_text(name: str) -> None:
    assert render(ALL[name]) == render(replace(ALL[name]))
    assert render(ALL[name]).endswith("}\n")
