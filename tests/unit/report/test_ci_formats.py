"""The formats that CI services read: valid whatever a trace holds, and never a command of the trace's own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor import report
from ampdoctor.analysis.calls.code_lines import CodeLines
from ampdoctor.finding import Fix, Location
from ampdoctor.gate import check
from ampdoctor.gate.policy import Policy
from ampdoctor.report import github, html, junit, markdown, sarif
from ampdoctor.report.gated import headline
from tests.unit.gate.runs import built
from tests.unit.report.diagnoses import ALL, COLLAPSED, UNDERFLOW, UNTIDY
from tests.unit.report.results import ATTACKED, FAILED, HOSTILE, PASSED, RESULTS

if TYPE_CHECKING:
    from pathlib import Path

DIAGNOSES = {**ALL, "hostile": HOSTILE}

FORMATS = report.known_gate_formats()


def every(module: Any) -> list[str]:
    """Return what a format makes of everything there is."""
    return [*map(module.render, DIAGNOSES.values()), *map(module.render_gate, RESULTS.values())]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("case", RESULTS)
def test_every_format_renders_every_result(name: str, case: str) -> None:
    text = FORMATS[name](RESULTS[case])
    assert text.endswith("\n")
    assert text == report.find_gate_format(name)(RESULTS[case])
    assert text.isprintable() or not re.search("[\x00-\x08\x0b-\x1f\x7f]", text)


@pytest.mark.parametrize("name", FORMATS)
def test_a_failure_says_so(name: str) -> None:
    said = re.sub(r"\s+", " ", FORMATS[name](FAILED))
    assert "failed: 61 %" in said or "failed: 61 %25" in said
    assert "passed: " in FORMATS[name](PASSED)


def test_formats_of_diagnoses_are_those_of_gates() -> None:
    assert set(FORMATS) == set(report.known_formats())
    assert {"text", "json", "markdown", "github", "junit", "sarif", "html"} <= set(FORMATS)


def test_annotations_are_one_line_each_and_nothing_else() -> None:
    for text in every(github):
        for line in text.splitlines():
            assert re.fullmatch(r"::(error|warning|notice) (\w+=[^:,\r\n]*,?)+::[^\r\n]*", line), line


def test_an_annotation_stands_at_the_line_of_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", "/srv/projects/pretraining")
    text = github.render(COLLAPSED)
    start = "::error file=scripts/with/a/long/path/train_bert_mlm.py,line=88,title=gradient-underflow"
    assert f"{start} ({UNDERFLOW.code})::" in text
    assert "61 %25 of the gradient" in text
    assert "%0AFix: Scale the loss with GradScaler." in text


def test_a_failed_check_is_an_error_and_the_rest_is_not() -> None:
    assert github.render_gate(FAILED).startswith("::error title=ampdoctor check::failed: ")
    assert "::error" not in github.render_gate(PASSED)


@pytest.mark.parametrize(
    ("source", "start"),
    [
        ("train.py:3", "file=train.py,line=3,"),
        ("a, b:c.py:3", "file=a%2C b%3Ac.py,line=3,"),
        ("C:\\x\\t.py:3", "file=C%3A/x/t.py,line=3,"),
        ("train.py", "title="),
        ("train.py:0", "title="),
    ],
)
def test_sources_of_every_kind(source: str, start: str) -> None:
    finding = replace(UNDERFLOW, location=Location(source=source))
    line = github.render(replace(COLLAPSED, findings=(finding,))).splitlines()[1]
    assert line.startswith(f"::error {start}")


@pytest.mark.parametrize(
    ("first_step", "lines", "line"),
    [
        (0, CodeLines("t.py", ((0, "t.py:5"), (4, "t.py:9"))), 5),
        (6, CodeLines("t.py", ((0, "t.py:5"), (4, "t.py:9"))), 9),
        (None, CodeLines("t.py", ((2, "t.py:5"),)), 5),
        (3, CodeLines("t.py"), 1),
    ],
)
def test_a_finding_without_a_line_stands_at_its_step(first_step: int | None, lines: CodeLines, line: int) -> None:
    finding = replace(UNDERFLOW, location=Location(first_step=first_step))
    diagnosis = replace(COLLAPSED, findings=(finding,), lines=lines)
    assert f"::error file=t.py,line={line},title=" in github.render(diagnosis)
    assert f"Line: t.py:{line}" in junit.render(diagnosis)
    (result,) = json.loads(sarif.render(diagnosis))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": line}


def test_a_metric_stands_at_the_script() -> None:
    result = replace(FAILED, diagnosis=replace(FAILED.diagnosis, lines=CodeLines("t.py")))
    assert "::error file=t.py,line=1,title=flushed gradient::" in github.render_gate(result)
    assert "Line: t.py:1" in junit.render_gate(result)


def test_junit_is_xml_whose_counts_are_right() -> None:
    for text in every(junit):
        suite = ET.fromstring(text).find("testsuite")
        assert suite is not None
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases))
        for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert suite.get(count) == str(sum(case.find(tag) is not None for case in cases))


def test_junit_has_a_test_for_each_rule() -> None:
    suite = ET.fromstring(junit.render(UNTIDY))[0]
    names = {case.get("name"): [child.tag for child in case] for case in suite.findall("testcase")}
    assert names["gradient-underflow"] == []
    assert names["lost-updates"] == ["skipped"]
    assert names["scale-hunting"] == ["error"]
    failed = ET.fromstring(junit.render(COLLAPSED)).find(".//failure")
    assert failed is not None
    assert failed.get("message") == UNDERFLOW.summary


REQUIRED = {"$schema", "version", "runs"}


def test_sarif_has_what_its_schema_requires() -> None:
    for text in every(sarif):
        log = json.loads(text)
        assert set(log) == REQUIRED
        assert log["version"] == "2.1.0"
        (run,) = log["runs"]
        rules = run["tool"]["driver"]["rules"]
        assert len({rule["id"] for rule in rules}) == len(rules)
        for rule in rules:
            assert set(rule) <= {
                "id", "name", "shortDescription", "fullDescription", "help", "defaultConfiguration", "properties",
            }  # fmt: skip
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["level"] in {"none", "note", "warning", "error"}
            assert result["message"]["text"]
            assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
            assert len(result["locations"]) == 1
            for location in result["locations"]:
                assert location["physicalLocation"]["artifactLocation"]["uri"]
                assert location["physicalLocation"]["region"]["startLine"] >= 1
                names = [place["fullyQualifiedName"] for place in location.get("logicalLocations", [])]
                assert len(set(names)) == len(names)
        for invocation in run["invocations"]:
            assert isinstance(invocation["executionSuccessful"], bool)


def test_sarif_paths_are_relative_to_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path)
    inside = replace(UNDERFLOW, location=Location(source=f"{tmp_path}/a b.py:7"))
    outside = replace(UNDERFLOW, location=Location(source="/elsewhere/b.py:7"))
    log = json.loads(sarif.render(replace(COLLAPSED, findings=(inside, outside))))
    places = [r["locations"][0]["physicalLocation"] for r in log["runs"][0]["results"]]
    assert [place["artifactLocation"] for place in places] == [
        {"uri": "a%20b.py", "uriBaseId": "%SRCROOT%"},
        {"uri": "file:///elsewhere/b.py"},
    ]


def test_sarif_knows_what_is_new_and_brings_the_page_of_the_rule() -> None:
    known = replace(UNDERFLOW, code="AMP101")
    run = json.loads(sarif.render(replace(COLLAPSED, findings=(known,))))["runs"][0]
    assert run["results"][0]["partialFingerprints"]["ampdoctor/v1"] == known.fingerprint
    assert "How to fix" in run["tool"]["driver"]["rules"][0]["help"]["text"]
    states = [r.get("baselineState") for r in json.loads(sarif.render_gate(FAILED))["runs"][0]["results"]]
    assert states[0] == "new"


class _Tags(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_loads_nothing_and_holds_no_markup_of_the_trace() -> None:
    for text in every(html):
        page = _Tags()
        page.feed(text)
        assert page.open == []
        assert not page.tags & {"b", "script", "link", "img", "iframe", "a"}
        assert page.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class"}


def test_markdown_escapes_what_is_markup() -> None:
    for text in (markdown.render(HOSTILE), markdown.render_gate(ATTACKED)):
        outside = re.sub(r"(`{3,})python\n.*?\n\1", "", text, flags=re.DOTALL)
        assert "<b>" not in outside
        assert not re.search(r"(?<!\\)`", outside)
        assert "@team" not in outside
        rows = [line for line in outside.splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {5, 6}


def test_a_fence_is_longer_than_any_in_the_code() -> None:
    assert "````python\n```\n" in markdown.render(HOSTILE)


def test_the_headline_counts_what_fails() -> None:
    assert headline(FAILED).endswith(f", and {len(FAILED.failures) - 1} more checks fail")
    assert headline(RESULTS["uncompared"]).startswith("not judged by scale-hunting")


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=60, deadline=None)
def test_every_text_is_told_by_every_format(text: str) -> None:
    finding = replace(
        UNDERFLOW, summary=text, location=Location((text,), source=f"{text}:3"), fixes=(Fix(text, text, text),)
    )
    diagnosis = replace(COLLAPSED, findings=(finding,), run=text, verdict=text)
    result = check(built().build(), diagnosis, Policy())
    for case, render in ((diagnosis, "render"), (result, "render_gate")):
        assert ET.fromstring(getattr(junit, render)(case)) is not None
        assert json.loads(getattr(sarif, render)(case))["version"] == "2.1.0"
        assert all(line.startswith("::") for line in getattr(github, render)(case).splitlines())
        page = _Tags()
        page.feed(getattr(html, render)(case))
        assert page.open == []
        assert "<" not in re.sub(
            r"</?(details|summary)>|(`{3,})python\n.*?\n\2", "", markdown_of(render, case), flags=re.DOTALL
        )


def markdown_of(render: str, case: Any) -> str:
    return str(getattr(markdown, render)(case))
