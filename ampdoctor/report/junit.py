"""JUnit XML, which every CI service shows as tests: a test for each rule, and for each metric that was compared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ampdoctor.finding import Severity
from ampdoctor.gate.result import Against, Outcome
from ampdoctor.report.gated import STATUS_TEXT, changes, headline, metric_id
from ampdoctor.report.places import place_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.gate.result import GateResult, MetricCheck

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 can't hold, escaped or not."""


def render(diagnosis: Diagnosis) -> str:
    """Return a test for each rule: faults are failures, notes are not."""
    suite = _suite("ampdoctor diagnose", diagnosis.verdict)
    for finding in diagnosis.findings:
        _tested(suite, finding, diagnosis, failed=finding.severity is not Severity.NOTE, status=finding.severity.value)
    _other_rules(suite, diagnosis)
    return _document(suite)


def render_gate(result: GateResult) -> str:
    """Return a test for each rule, and one for each metric and site that was compared."""
    said = "\n".join([headline(result), *(f"{title}: {text}" for title, text in changes(result))])
    suite = _suite("ampdoctor check", said)
    for made in result.findings:
        failed = made.outcome is Outcome.FAIL
        _tested(suite, made.finding, result.diagnosis, failed=failed, status=STATUS_TEXT[made.status])
    _other_rules(suite, result.diagnosis)
    for compared in result.metrics:
        _metric(suite, compared, result.diagnosis)
    return _document(suite)


def _suite(name: str, said: str) -> ET.Element:
    suite = ET.Element("testsuite", {"name": name})
    ET.SubElement(suite, "system-out").text = _text(said)
    return suite


def _case(suite: ET.Element, kind: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": f"ampdoctor.{kind}", "name": _text(name)})


def _tested(suite: ET.Element, finding: Finding, diagnosis: Diagnosis, *, failed: bool, status: str) -> None:
    case = _case(suite, "rules", finding.name)
    told = "\n".join(_told(finding, diagnosis))
    if failed:
        tag = ET.SubElement(case, "failure", {"message": _text(finding.summary), "type": f"{finding.code} {status}"})
        tag.text = _text(told)
    else:
        ET.SubElement(case, "system-out").text = _text(f"{status}: {told}")


def _told(finding: Finding, diagnosis: Diagnosis) -> Iterable[str]:
    yield finding.summary
    yield from (f"- {evidence.text} ({evidence.grade.value})" for evidence in finding.evidence)
    if finding.location.sites:
        yield "Where: " + ", ".join(finding.location.sites)
    place = place_in(diagnosis, finding.location)
    if place:
        yield f"Line: {place.file}:{place.line}"
    for fix in finding.fixes:
        yield f"Fix: {fix.title}. {fix.expected}"
        yield fix.code.strip("\n")


def _other_rules(suite: ET.Element, diagnosis: Diagnosis) -> None:
    for crashed in diagnosis.crashed:
        ET.SubElement(_case(suite, "rules", crashed.rule), "error", {"message": _text(crashed.reason)})
    for accepted in diagnosis.ignored:
        case = _case(suite, "rules", accepted.finding.name)
        ET.SubElement(case, "skipped", {"message": _text(f"accepted: {accepted.reason}")})
    for skipped in diagnosis.skipped:
        ET.SubElement(_case(suite, "rules", skipped.rule), "skipped", {"message": _text(skipped.reason)})
    for name in diagnosis.passed:
        _case(suite, "rules", name)


def _metric(suite: ET.Element, made: MetricCheck, diagnosis: Diagnosis) -> None:
    limit = " (limit)" if made.against is Against.LIMIT else ""
    case = _case(suite, "metrics", metric_id(made) + limit)
    if made.outcome is Outcome.FAIL:
        place = place_in(diagnosis)
        line = f"\nLine: {place.file}:{place.line}" if place else ""
        tag = ET.SubElement(case, "failure", {"message": _text(made.why), "type": made.against.value})
        tag.text = _text(made.metric.doc + line)
    elif made.outcome is Outcome.NOT_MEASURED:
        ET.SubElement(case, "skipped", {"message": _text(made.why)})
    else:
        ET.SubElement(case, "system-out").text = _text(made.why)


def _document(suite: ET.Element) -> str:
    cases = suite.findall("testcase")
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))
    said = suite.find("system-out")
    if said is not None:  # the schema wants it after the tests
        suite.remove(said)
        suite.append(said)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _text(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
